package chaos

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

const (
	// surviveIdle counts as four seconds (package idletimeout).
	surviveIdle     = 3 * time.Second
	surviveTime     = time.Minute
	survivors       = 3
	surviveRollouts = 5 // at least
)

// A sandbox with one request a second and an idle timeout of three seconds is not released
// while gateways are rolled one by one for a minute, and is released soon after the requests
// end. A sandbox without requests is released meanwhile.
func TestSandboxSurvivesRollouts(t *testing.T) {
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "brief", survivors+1, stack.WithIdleTimeout(surviveIdle))
	shared.Pool(t, ns, "probe", 1, stack.WithIdleTimeout(0))
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(tr.CloseIdleConnections)
	r := &rolling{load: newLoad(t, ns+"/brief"), client: &http.Client{Transport: tr, Timeout: time.Minute}, signalled: map[string]time.Time{}}
	r.stop, r.end = context.WithCancel(t.Context())
	t.Cleanup(r.end)
	id := func(kind string, i int) string { return fmt.Sprintf("%s-%s-%d", kind, ns, i) }
	probe, unused := id("probe", 0), id("unused", 0)
	shared.Touch(t, probe, ns+"/probe")
	shared.Touch(t, unused, ns+"/brief")
	var running sync.WaitGroup
	for i := range survivors {
		running.Go(func() { r.generate(1, func(n int) { r.request(n+i, id("used", i), r.pool) }) })
	}

	rollouts := 0
	for began := time.Now(); time.Since(began) < surviveTime; rollouts++ {
		r.roll(rollouts%len(shared.Up.Gateways), probe)
	}
	r.end()
	running.Wait()
	r.sent.Wait()
	r.judge()
	for _, line := range r.failed {
		t.Error(line)
	}
	for i := range survivors {
		claims := record.Claims(id("used", i))
		if len(claims) != 1 || !claims[0].Ended.IsZero() {
			t.Errorf("%s was asked once a second and has the claims %+v", id("used", i), claims)
		}
	}
	for _, id := range []string{unused, id("used", 0), id("used", 1), id("used", 2)} {
		shared.Eventually(t, time.Minute, id+" to be released", func() (bool, string) {
			s, found := shared.Sandbox(t, id)
			return found && s.Spec.End != nil && s.Spec.End.Reason == v1alpha1.EndIdleTimeout, fmt.Sprintf("found %v, end %+v", found, s.Spec.End)
		})
	}
	t.Logf("%d rollouts, %d requests of %d sandboxes, %d connect errors; none released before the end", rollouts, r.requests, survivors, r.refused)
	if least := survivors * int(surviveTime.Seconds()) * 9 / 10; rollouts < surviveRollouts || r.requests < least {
		t.Errorf("that is too little: want %d rollouts and %d requests", surviveRollouts, least)
	}
}

// roll stops a gateway with a signal and waits until its successor serves the probe.
func (r *rolling) roll(i int, probe string) {
	g := shared.Up.Gateways[i]
	now := &stack.Stack{State: shared.State}
	if err := now.Reload(); err != nil {
		r.t.Fatal(err)
	}
	former := now.Up.Gateways[i].Pids
	signal(r.t, former["gateway"], syscall.SIGTERM)
	shared.Eventually(r.t, time.Minute, g.Name+" to serve again", func() (bool, string) {
		if err := now.Reload(); err != nil {
			return false, err.Error()
		}
		for name, pid := range now.Up.Gateways[i].Pids {
			if pid == 0 || pid == former[name] {
				return false, fmt.Sprintf("%s is still %d", name, pid)
			}
		}
		req, err := stack.Request{ID: probe}.Build(r.t.Context(), g.URL)
		if err != nil {
			return false, err.Error()
		}
		a, err := stack.Send(r.client, req)
		if err != nil {
			return false, err.Error()
		}
		return a.Echo != nil, a.String()
	})
}
