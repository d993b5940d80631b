package chaos

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	corev1 "k8s.io/api/core/v1"
)

// awayRecovery bounds the time until all processes have recovered by themselves after the
// API server did not run for long, on a busy machine.
const awayRecovery = time.Minute

// process is one line of `sandlane status`.
type process struct{ pid, restarts int }

// processes runs `sandlane status`, which also works while the API server does not run.
func processes(t *testing.T) map[string]process {
	t.Helper()
	out, _ := shared.Run(t.Context(), "status") // its exit code is an error while anything is wrong
	all := map[string]process{}
	_, table, _ := strings.Cut(out, "PROCESS ")
	for _, line := range strings.Split(table, "\n")[1:] {
		f := strings.Fields(line)
		if len(f) < 4 {
			break
		}
		pid, err := strconv.Atoi(f[1])
		n, err2 := strconv.Atoi(f[3])
		if err != nil || err2 != nil {
			t.Fatalf("`status` says %q", line)
		}
		all[f[0]] = process{pid, n}
	}
	if len(all) == 0 {
		t.Fatalf("`status` names no process: %s", out)
	}
	return all
}

// stayed checks that the restarted controller and gateway are still the same processes: they
// wait for the API server, and do not end again and again.
func (o *outage) stayed(now map[string]process) {
	o.t.Helper()
	for _, name := range []string{"controller", "gateway-3"} {
		if now[name] != o.back[name] {
			o.t.Errorf("%s was %+v while it waited for the API server, and is %+v", name, o.back[name], now[name])
		}
	}
}

// watchGateway notes when the killed gateway is ready again.
func (o *outage) watchGateway() {
	o.serving = make(chan time.Time, 1)
	url := strings.TrimSuffix(shared.Up.Gateways[2].MetricsURL, "metrics") + "readyz"
	c := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	go func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for away := false; ; {
			res, err := c.Get(url)
			if err == nil {
				_ = res.Body.Close()
			}
			ready := err == nil && res.StatusCode == http.StatusOK
			if away = away || !ready; away && ready {
				o.serving <- time.Now()
				return
			}
			select {
			case <-tick.C:
			case <-o.t.Context().Done():
				return
			}
		}
	}()
}

// recovers waits until everything works as before, and logs how long each part took.
func (o *outage) recovers(before map[string]process) {
	t := o.t
	t.Helper()
	var took []string
	note := func(what string) {
		d := time.Since(o.returned)
		took = append(took, fmt.Sprintf("%s %v", what, d.Round(100*time.Millisecond)))
		if d > awayRecovery {
			t.Errorf("%s only %v after the API server was started again", what, d)
		}
	}
	shared.Eventually(t, 2*awayRecovery, "the API server", func() (bool, string) {
		err := shared.Client.List(t.Context(), &corev1.NamespaceList{})
		return err == nil, fmt.Sprint(err)
	})
	note("API server")
	if o.restart {
		select {
		case at := <-o.serving:
			took = append(took, fmt.Sprintf("killed gateway %v", at.Sub(o.returned).Round(100*time.Millisecond)))
			o.serving <- at
		case <-time.After(2 * awayRecovery):
			t.Fatal("the killed gateway does not serve")
		}
	}
	o.claimAndEnd("recovered")
	note("claims and ends through every gateway")
	shared.Eventually(t, 2*awayRecovery, "`status` to find nothing wrong", func() (bool, string) {
		out, err := shared.Run(t.Context(), "status")
		return err == nil, out
	})
	note("status")
	shared.WaitIdle(t, o.ns, "busy", 5)
	note("pool")
	t.Logf("after the API server was started again: %s", strings.Join(took, ", "))
	killed := map[string]bool{"etcd": true, "kube-apiserver": true, "controller": o.restart, "gateway-3": o.restart}
	for name, p := range processes(t) {
		if !killed[name] && p != before[name] {
			t.Errorf("%s was %+v before the API server went, and is %+v", name, before[name], p)
		}
	}
}

// judge checks that there were enough requests and that the sandbox's pod answered each,
// except those that the killed gateway refused before it was ready again; and that none of
// these sandboxes has ended.
func (o *outage) judge() {
	t := o.t
	t.Helper()
	var served time.Time
	if o.restart {
		served = <-o.serving
	}
	elapsed, refused, failed := time.Since(o.began), 0, 0
	for _, s := range o.load.all {
		for _, f := range s.failed {
			if o.restart && s.gateway == 2 && f.status == http.StatusServiceUnavailable && f.end.After(o.killed) && f.begin.Before(served) {
				refused++
				continue
			}
			if failed++; failed <= 10 {
				t.Errorf("%s through gateway %d failed %v after the gap began, after %v: %s", s.id, s.gateway+1, f.begin.Sub(o.began), f.end.Sub(f.begin), f.what)
			}
		}
	}
	ok := o.load.counted() - o.countedBefore
	rate := float64(ok+refused) / elapsed.Seconds()
	t.Logf("%d requests in %v (%.0f/s of %d/s) for %d sandboxes answered by their pods, %d refused by the killed gateway before it was ready, %d failed",
		ok, elapsed.Round(time.Second), rate, knownOnes*perSecond, len(o.load.all), refused, failed)
	if rate < knownOnes*perSecond/2 {
		t.Errorf("that is too little: want %d/s", knownOnes*perSecond/2)
	}
	if o.restart && refused == 0 {
		t.Error("the kill met no request")
	}
	ids, err := o.ended()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if strings.HasPrefix(id, "known-") || strings.HasPrefix(id, "socket-") {
			t.Errorf("%s was in use and has ended", id)
		}
	}
}

// webSockets opens one silent WebSocket through each gateway, each the only use of its
// sandbox. The returned function checks that all are still open.
func (o *outage) webSockets() (check func()) {
	t := o.t
	t.Helper()
	type socket struct {
		c    *websocket.Conn
		read chan error
	}
	var all []socket
	for i, g := range shared.Up.Gateways {
		id := fmt.Sprintf("socket-%d", i)
		shared.Touch(t, id, o.ns+"/busy")
		c, res, err := websocket.Dial(t.Context(), g.URL+"/ws", &websocket.DialOptions{Host: "8000-" + id + ".localhost"})
		if err != nil {
			t.Fatal(err)
		}
		if res.Body != nil {
			_ = res.Body.Close()
		}
		s := socket{c, make(chan error, 1)}
		t.Cleanup(func() { _ = c.CloseNow() })
		go func() {
			_, _, err := c.Read(context.WithoutCancel(t.Context()))
			s.read <- err
		}()
		all = append(all, s)
	}
	return func() {
		t.Helper()
		for i, s := range all {
			err := s.c.Write(t.Context(), websocket.MessageText, []byte("still there"))
			if err == nil {
				select {
				case err = <-s.read:
				case <-time.After(10 * time.Second):
					err = context.DeadlineExceeded
				}
			}
			if err != nil {
				t.Errorf("the silent WebSocket through gateway %d: %v", i+1, err)
			}
		}
	}
}
