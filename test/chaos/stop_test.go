package chaos

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/history"
	"github.com/sandlane/sandlane/test/stack"
)

// A gateway is stopped for longer than its lease while its sandboxes end and their addresses
// serve other sandboxes. Before the lease is over, no address to which the gateway may still
// route serves another sandbox, and claims go on through the other gateways. When the gateway
// is continued it refuses requests or answers them right, never wrong, and serves again by
// itself.
func TestGatewayStoppedPastItsLease(t *testing.T) {
	const victims, want = 10, 8
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "pool", 15, stack.WithIdleTimeout(0))
	l := newLoad(t, ns+"/pool")
	stopped, others := shared.Up.Gateways[2], shared.Up.Gateways[:2]
	for i := range victims {
		id := fmt.Sprintf("victim-%d", i)
		shared.Touch(t, id, l.pool)
		for range 2 {
			l.hammer(stopped, 25*time.Millisecond, func() string { return id }, nil)
		}
	}
	shared.WaitIdle(t, ns, "pool", 15)
	refusedBefore := noLease(t, stopped)
	pid := gatewayPID(t, 2, 0)
	signal(t, pid, syscall.SIGSTOP)
	began := time.Now()
	awake := false
	t.Cleanup(func() {
		if !awake {
			signal(t, pid, syscall.SIGCONT)
		}
	})
	for i := range victims {
		if err := writes.EndSandbox(t.Context(), shared.Client, fmt.Sprintf("victim-%d", i), v1alpha1.EndReleased, "its gateway stands still"); err != nil {
			t.Fatal(err)
		}
	}
	claimed := 0
	claim := func() {
		id := fmt.Sprintf("heir-%d", claimed)
		if a := l.ask(newHTTP(t), others[claimed%2], id); a.Echo == nil {
			t.Errorf("%s while another gateway stands still: %v", id, a)
		}
		claimed++
	}
	for range victims {
		claim()
	}
	t.Logf("%d claims went on, the last %v after the stop", claimed, time.Since(began).Round(time.Millisecond))

	var ended []history.Interval
	shared.Eventually(t, time.Minute, "the fences of all that ended", func() (bool, string) {
		ended = nil
		for i := range victims {
			for _, c := range record.Claims(fmt.Sprintf("victim-%d", i)) {
				if !c.Over.IsZero() {
					ended = append(ended, c)
				}
			}
		}
		return len(ended) == victims, fmt.Sprintf("%d of %d", len(ended), victims)
	})
	soonest := time.Hour
	for _, c := range ended {
		soonest = min(soonest, c.Over.Sub(began))
	}
	// The last renewal was sent at most leaseRenew before the stop.
	if soonest < lease-leaseRenew {
		t.Errorf("an address was free %v after its gateway stood still, within the lease of %v", soonest, lease)
	}
	reused := 0
	shared.Eventually(t, time.Minute, "the addresses to serve others", func() (bool, string) {
		claim()
		reused = 0
		for _, c := range ended {
			if record.UsedAfter(c) {
				reused++
			}
		}
		return reused >= want || t.Failed(), fmt.Sprintf("%d of %d after %d claims", reused, want, claimed)
	})

	// When the gateway is continued it finds requests for sandboxes whose routes it still
	// has, and whose addresses serve other sandboxes. It answers them before its watches and
	// the goroutine that renews its lease run: only the clock shows that the lease is over.
	held := []string{"controlplane/renew", "index/pods", "index/sandboxes"}
	for _, point := range held {
		arm(t, stopped.Name, point, "hold")
	}
	waiting := l.salvo(stopped, ended, 20)
	l.mu.Lock()
	before := len(l.answers)
	l.mu.Unlock()
	signal(t, pid, syscall.SIGCONT)
	awake = true
	slept, woke := time.Since(began), time.Now()
	met := waiting()
	refused := noLease(t, stopped) - refusedBefore
	for _, point := range held {
		disarm(t, stopped.Name, point)
	}
	c := newHTTP(t)
	shared.Eventually(t, 30*time.Second, "the gateway to serve again", func() (bool, string) {
		a := l.ask(c, stopped, "heir-0")
		return a.Echo != nil, a.String()
	})
	served := time.Since(woke)
	l.judge()
	t.Logf("stopped for %v; the first of %d addresses free after %v (lease %v), %d in use by others when the gateway went on; it then met %d requests for routes of before and answered %s, refused %d for want of a lease, and served again after %v; %d answers by pods afterwards",
		slept.Round(time.Millisecond), victims, soonest.Round(time.Millisecond), lease, reused, victims*20, counts(met), refused, served.Round(time.Millisecond), len(l.answers)-before)
	if reused < want {
		t.Errorf("that is too little: want %d addresses in use", want)
	}
	if refused < victims {
		t.Errorf("that is too little: want %d requests that met the gateway while only the clock said that its lease is over", victims)
	}
}

var noLeaseLine = regexp.MustCompile(`(?m)^sandlane_extproc_requests_total\{outcome="rejected",reason="no_lease"\} (\d+)`)

// noLease returns how many requests a gateway has refused because it held no lease.
func noLease(t *testing.T, g stack.Gateway) int {
	t.Helper()
	c := &http.Client{Timeout: time.Minute}
	res, err := c.Get(g.MetricsURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if found := noLeaseLine.FindSubmatch(text); found != nil {
		n, _ = strconv.Atoi(string(found[1]))
	}
	return n
}

// A gateway is stopped for less than its lease. No address to which it may still route serves
// another sandbox meanwhile; the pool gets idle pods on other addresses, and claims go on.
// When the gateway is continued it answers right or refuses, acknowledges its fences, and the
// addresses are free.
func TestGatewayStoppedWithinItsLease(t *testing.T) {
	const victims, idle = 8, 10
	ownStack(t)
	if err := record.Start(context.Background(), shared.Client); err != nil {
		t.Fatal(err)
	}
	defer record.Stop()
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "pool", idle, stack.WithIdleTimeout(0))
	l := newLoad(t, ns+"/pool")
	stopped, others := shared.Up.Gateways[2], shared.Up.Gateways[:2]
	for i := range victims {
		id := fmt.Sprintf("victim-%d", i)
		shared.Touch(t, id, l.pool)
		l.hammer(stopped, 50*time.Millisecond, func() string { return id }, nil)
	}
	shared.WaitIdle(t, ns, "pool", idle)
	pid := gatewayPID(t, 2, 0)
	signal(t, pid, syscall.SIGSTOP)
	began, awake := time.Now(), false
	defer func() {
		if !awake {
			signal(t, pid, syscall.SIGCONT)
		}
	}()
	for i := range victims {
		if err := writes.EndSandbox(t.Context(), shared.Client, fmt.Sprintf("victim-%d", i), v1alpha1.EndReleased, "its gateway stands still"); err != nil {
			t.Fatal(err)
		}
	}
	heirs := 0
	claim := func() {
		id := fmt.Sprintf("heir-%d", heirs)
		if a := l.ask(newHTTP(t), others[heirs%2], id); a.Echo == nil {
			t.Errorf("%s while another gateway stands still: %v", id, a)
		}
		heirs++
	}
	for range idle + victims { // more than were idle, so that the pool must make more
		claim()
	}
	shared.WaitIdle(t, ns, "pool", idle)
	refilled := time.Since(began)
	// At least as long as until a pod that waits for an address is replaced: 10 s.
	shared.Eventually(t, time.Minute, "the gateway to have stood still for a while", func() (bool, string) {
		return time.Since(began) > 20*time.Second, time.Since(began).String()
	})
	var owed []history.Interval
	for i := range victims {
		for _, c := range record.Claims(fmt.Sprintf("victim-%d", i)) {
			owed = append(owed, c)
			if !c.Over.IsZero() || record.UsedAfter(c) {
				t.Errorf("%s of %s is over or in use, and the gateway that may route to it has not said so", c.Address, c.ID)
			}
			for _, p := range shared.PodsOf(t, ns) {
				if p.Annotations[v1alpha1.AnnotationAddress] == c.Address && p.Annotations[v1alpha1.AnnotationClaim] == "" {
					t.Errorf("pod %s has %s of %s, which is not over", p.Name, c.Address, c.ID)
				}
			}
		}
	}
	waiting := l.salvo(stopped, owed, 5)
	signal(t, pid, syscall.SIGCONT)
	awake = true
	slept, woke := time.Since(began), time.Now()
	met := waiting()
	shared.Eventually(t, time.Minute, "the fences of all that ended", func() (bool, string) {
		n := 0
		for i := range victims {
			for _, c := range record.Claims(fmt.Sprintf("victim-%d", i)) {
				if !c.Over.IsZero() {
					n++
				}
			}
		}
		return n == victims, fmt.Sprint(n)
	})
	fenced := time.Since(woke)
	c := newHTTP(t)
	shared.Eventually(t, time.Minute, "the gateway to serve again", func() (bool, string) {
		a := l.ask(c, stopped, "heir-0")
		return a.Echo != nil, a.String()
	})
	l.judge()
	t.Logf("stopped for %v of a lease of %v: %d claims went on and the pool was full again after %v, none with one of %d addresses of ended sandboxes; it then answered %s, and these were free %v later",
		slept.Round(time.Millisecond), usersLease, heirs, refilled.Round(time.Millisecond), len(owed), counts(met), fenced.Round(time.Millisecond))
	if len(owed) != victims {
		t.Errorf("that is too little: %d addresses were owed, want %d", len(owed), victims)
	}
}

// salvo sends n requests for each sandbox and returns when all are written. The returned
// function waits for the answers and counts them by status.
func (l *load) salvo(g stack.Gateway, ended []history.Interval, n int) func() map[string]int {
	var written, answered sync.WaitGroup
	var mu sync.Mutex
	met := map[string]int{}
	for _, e := range ended {
		for range n {
			c, once := newHTTP(l.t), sync.Once{}
			written.Add(1)
			ctx := httptrace.WithClientTrace(l.ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { once.Do(written.Done) }})
			answered.Go(func() {
				a := l.askWith(ctx, c, g, e.ID)
				once.Do(written.Done) // the request failed before it was written
				mu.Lock()
				defer mu.Unlock()
				met[fmt.Sprint(a.Status)]++
			})
		}
	}
	written.Wait()
	return func() map[string]int { answered.Wait(); return met }
}
