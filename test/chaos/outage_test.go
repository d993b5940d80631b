package chaos

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/history"
	"github.com/sandlane/sandlane/test/stack"
)

// The schedule of TestControlPlaneAway.
const (
	gap        = 90 * time.Second
	restartAt  = 20 * time.Second // into the gap
	knownOnes  = 50
	perSecond  = 20 // requests for each of them
	busyIdle   = 10 * time.Second
	quietIdle  = 45 * time.Second
	quietUntil = 75 * time.Second // into the gap; then it is idle
	lostIdle   = 100 * time.Second
	settleFor  = 25 * time.Second // load goes on after the gap
)

// usersLease is the duration of the leases of ownStack.
const usersLease = 10 * time.Minute

// ownStack starts a stack with the leases that users have, and uses it in place of the shared
// one until the test ends.
func ownStack(t *testing.T) {
	t.Helper()
	state, err := os.MkdirTemp("", "sandlane-outage-")
	if err != nil {
		t.Fatal(err)
	}
	was, wasRecord, wasPoints := shared, record, points
	points = t.TempDir()
	t.Setenv("SANDLANE_FAILPOINTS", points)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	own, err := stack.Start(ctx, state, "--isolation", "full", "--gateways", "3", "--pool-size", "0", "--idle-timeout", "0", "--reuse-addresses")
	shared, record = own, history.NewRecorder()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(shared.Logs(25))
		}
		if err := own.Stop(); err != nil {
			t.Error(err)
		} else if !t.Failed() {
			_ = os.RemoveAll(state)
		}
		shared, record, points = was, wasRecord, wasPoints
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The data plane works without its control plane. While the API server and etcd do not run
// for 90 s, no request for a known sandbox fails, also if the sandbox runs sandboxd and the
// gateway has not initialised it or joined after it was made, or was paused once and its spec
// has just changed. New claims are refused; no
// sandbox in use is released for idleness, then or after; all processes recover by
// themselves. The same holds if the controller and a gateway are killed meanwhile: that
// gateway refuses requests until it has listed, and no other request fails.
func TestControlPlaneAway(t *testing.T) {
	for _, tc := range []struct {
		name    string
		restart bool
	}{{"away", false}, {"controller and gateway killed meanwhile", true}} {
		t.Run(tc.name, func(t *testing.T) {
			ownStack(t)
			controlPlaneAway(t, tc.restart)
		})
	}
}

func controlPlaneAway(t *testing.T, restart bool) {
	ns := "default"
	o := &outage{t: t, restart: restart, ns: ns, load: newCrowd(t), gapBegan: make(chan struct{})}
	shared.Pool(t, ns, "busy", 10, stack.WithIdleTimeout(busyIdle), stack.WithMaxPods(knownOnes+3+5))
	shared.Pool(t, ns, "quiet", 1, stack.WithIdleTimeout(quietIdle))
	shared.Pool(t, ns, "lost", 1, stack.WithIdleTimeout(lostIdle))
	made, resumed := o.makeUnmet()
	o.claimAll()
	quiet := o.usedUntil("quiet", 1, quietUntil)
	lost := o.usedUntil("lost", 2, restartAt)
	sockets := o.webSockets()
	shared.Eventually(t, time.Minute, "the load to run", func() (bool, string) {
		n := o.load.counted()
		return n >= 10*knownOnes, fmt.Sprint(n)
	})
	before := processes(t)

	o.change(resumed)
	killControlPlane(t, before)
	o.began, o.countedBefore = time.Now(), o.load.counted()
	close(o.gapBegan)
	refused := o.claimsMeanwhile()
	o.meet(made)
	if restart {
		o.wait(restartAt)
		o.killed = time.Now()
		kill(t, "controller", before["controller"].pid)
		kill(t, "gateway-3", before["gateway-3"].pid)
		o.watchGateway()
		o.wait(restartAt + 15*time.Second)
		o.back = processes(t)
		for _, name := range []string{"controller", "gateway-3"} {
			if p := o.back[name]; p.pid == 0 || p.pid == before[name].pid {
				t.Errorf("%s is not there 15 s after it was killed: %+v", name, p)
			}
		}
	}
	o.wait(gap)
	if err := shared.Client.List(t.Context(), &corev1.NamespaceList{}); err == nil {
		t.Error("the API server answers: it was not away")
	}
	if restart {
		o.stayed(processes(t))
	}
	disarm(t, upItself, "supervise/etcd")
	disarm(t, upItself, "supervise/kube-apiserver")
	o.returned = time.Now()
	o.recovers(before)
	o.wait(time.Since(o.began) + max(0, settleFor-time.Since(o.returned)))
	o.load.stop()
	o.judge()
	sockets()
	refused()
	o.released(quiet, quietIdle, true)
	o.released(lost, lostIdle, false)
	o.claimAndEnd("after")
}

// outage is one run.
type outage struct {
	t       *testing.T
	restart bool
	ns      string
	load    *crowd

	began, killed, returned time.Time
	countedBefore           int // answers before the gap
	gapBegan                chan struct{}
	serving                 chan time.Time // when the killed gateway was ready again
	back                    map[string]process
}

// wait waits until a time after the gap began.
func (o *outage) wait(after time.Duration) {
	o.t.Helper()
	select {
	case <-time.After(time.Until(o.began.Add(after))):
	case <-o.t.Context().Done():
		o.t.Fatal("the test's time is over")
	}
}

// claimAll makes the known sandboxes. Each is used at once, since its idle timeout runs.
func (o *outage) claimAll() {
	o.t.Helper()
	for i := range knownOnes {
		id := fmt.Sprintf("known-%d", i)
		g := i % len(shared.Up.Gateways)
		e := shared.Touch(o.t, id, o.ns+"/busy")
		o.load.add(newSteady(id, g, shared.Up.Gateways[g], e.PodUID), time.Second/perSecond)
	}
}

// use is a sandbox that gets one request a second for some time.
type use struct {
	id   string
	done chan struct{}
	last time.Time // the time of the last request; read after done
	err  error
}

// usedUntil sends one request a second for a sandbox through one gateway, until a time after
// the beginning of the gap.
func (o *outage) usedUntil(id string, gateway int, until time.Duration) *use {
	o.t.Helper()
	g := shared.Up.Gateways[gateway]
	e := shared.Touch(o.t, id, o.ns+"/"+id)
	u := &use{id: id, done: make(chan struct{}), last: time.Now()}
	s := newSteady(id, gateway, g, e.PodUID)
	go func() {
		defer close(u.done)
		defer s.hangUp()
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		var end <-chan time.Time
		began := o.gapBegan
		for {
			select {
			case <-o.t.Context().Done():
				return
			case <-began:
				end, began = time.After(until-time.Second), nil
			case <-end:
				return
			case <-tick.C:
				last := time.Now()
				if _, err := s.ask(); err != nil {
					u.err = err
					return
				}
				u.last = last
			}
		}
	}()
	return u
}

// claimsMeanwhile sends first requests through every gateway when the gap begins, and once
// more in the middle. The returned function checks that each was answered with 503 and
// Retry-After.
func (o *outage) claimsMeanwhile() (check func()) {
	type answer struct {
		stack.Answer
		err  error
		took time.Duration
	}
	var mu sync.Mutex
	var all []answer
	var asking sync.WaitGroup
	for _, g := range shared.Up.Gateways {
		for _, at := range []time.Duration{time.Second, 25 * time.Second} {
			asking.Go(func() {
				<-time.After(time.Until(o.began.Add(at)))
				began := time.Now()
				req, err := stack.Request{ID: fmt.Sprintf("refused-%s-%d", g.Name, at/time.Second), Pool: o.ns + "/busy"}.Build(o.t.Context(), g.URL)
				var a stack.Answer
				if err == nil {
					a, err = stack.Send(&http.Client{Timeout: gap, Transport: &http.Transport{DisableKeepAlives: true}}, req)
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, answer{a, err, time.Since(began)})
			})
		}
	}
	return func() {
		o.t.Helper()
		asking.Wait()
		var slowest time.Duration
		for _, a := range all {
			slowest = max(slowest, a.took)
			if a.err != nil || a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
				o.t.Errorf("a first request while the API server is away: %v, %v (Retry-After %q) after %v", a.err, a.Answer, a.Header.Get("Retry-After"), a.took)
			}
		}
		o.t.Logf("%d first requests refused with 503 and Retry-After, after %v at most", len(all), slowest.Round(time.Millisecond))
	}
}

// released checks that a sandbox was not released before its idle timeout since its last use
// and, if soon, that it is released for idleness after that.
func (o *outage) released(u *use, timeout time.Duration, soon bool) {
	o.t.Helper()
	<-u.done
	if u.err != nil {
		o.t.Errorf("%s: %v", u.id, u.err)
	}
	early := func(sb v1alpha1.Sandbox) {
		// The time of the end is rounded to seconds.
		if e := sb.Spec.End; e != nil && e.At.Time.Before(u.last.Add(timeout-time.Second)) {
			o.t.Errorf("%s was released %v after its last use, with an idle timeout of %v", u.id, e.At.Sub(u.last), timeout)
		}
	}
	if soon {
		shared.Eventually(o.t, timeout+time.Minute, "the idle release of "+u.id, func() (bool, string) {
			sb, _ := shared.Sandbox(o.t, u.id)
			return sb.Spec.End != nil, "not released"
		})
	}
	sb, found := shared.Sandbox(o.t, u.id)
	if !found {
		o.t.Errorf("%s is gone", u.id)
	}
	early(sb)
	if e := sb.Spec.End; e != nil {
		o.t.Logf("%s, used until %v into the gap, was released %v later (idle timeout %v)", u.id, u.last.Sub(o.began).Round(time.Second), e.At.Sub(u.last).Round(time.Second), timeout)
	}
}

// claimAndEnd makes a sandbox through each gateway and ends it.
func (o *outage) claimAndEnd(prefix string) {
	o.t.Helper()
	for i, g := range shared.Up.Gateways {
		id := fmt.Sprintf("%s-%d", prefix, i)
		shared.Eventually(o.t, 30*time.Second, "a claim through "+g.Name, func() (bool, string) {
			req, err := stack.Request{ID: id, Pool: o.ns + "/busy"}.Build(o.t.Context(), g.URL)
			if err != nil {
				return false, err.Error()
			}
			a, err := stack.Send(nil, req)
			return err == nil && a.Echo != nil, fmt.Sprint(a, err)
		})
		if err := writes.EndSandbox(o.t.Context(), shared.Client, id, v1alpha1.EndReleased, "it is released"); err != nil {
			o.t.Fatal(err)
		}
		shared.Eventually(o.t, 30*time.Second, "the end of "+id, func() (bool, string) {
			sb, _ := shared.Sandbox(o.t, id)
			return sb.Status.FencedAt != nil, string(sb.Status.Phase)
		})
	}
}

// kill kills a process of this stack.
func kill(t *testing.T, name string, pid int) {
	t.Helper()
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(line), shared.State) {
		t.Fatalf("process %d is %q, no %s of this stack", pid, line, name)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// killControlPlane kills the API server and etcd, and prevents that either is restarted.
func killControlPlane(t *testing.T, now map[string]process) {
	t.Helper()
	for _, name := range []string{"kube-apiserver", "etcd"} {
		arm(t, upItself, "supervise/"+name, "hold")
		kill(t, name, now[name].pid)
	}
	for _, name := range []string{"kube-apiserver", "etcd"} {
		waitReaped(t, now[name].pid)
	}
}

// ended lists the sandboxes of the run that have ended.
func (o *outage) ended() (ids []string, err error) {
	var list v1alpha1.SandboxList
	if err := shared.Client.List(o.t.Context(), &list, client.Limit(500)); err != nil {
		return nil, err
	}
	for _, s := range list.Items {
		if s.Spec.End != nil {
			ids = append(ids, fmt.Sprintf("%s (%s: %s)", s.Name, s.Spec.End.Reason, s.Spec.End.Message))
		}
	}
	return ids, nil
}
