package chaos

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/stack"
)

const (
	kills     = 20
	recovery  = 5 * time.Second
	newPerRun = 5 // first requests under way at each kill
	// calm is how long a gateway runs before it is killed again: one that ends sooner is
	// started again after pauses that double (local/supervise).
	calm = 32 * time.Second
)

// When a gateway is killed under load, its Envoy answers 503 and routes nothing, the gateway
// serves again by itself within 5 s, and claims that were under way are completed, neither
// lost nor made twice.
func TestGatewayKilled(t *testing.T) {
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "pool", 8, stack.WithIdleTimeout(0))
	l := newLoad(t, ns+"/pool")
	var steady []string
	for i := range 4 {
		id := fmt.Sprintf("steady-%d", i)
		steady = append(steady, id)
		shared.Touch(t, id, l.pool)
		for _, g := range shared.Up.Gateways {
			l.hammer(g, 25*time.Millisecond, func() string { return id }, nil)
		}
	}
	var slowest time.Duration
	former, served := make([]int, 3), make([]time.Time, 3)
	made, answeredAtOnce := 0, 0
	for n := range kills {
		i := n % 3
		g := shared.Up.Gateways[i]
		shared.WaitIdle(t, ns, "pool", 8)
		<-time.After(time.Until(served[i].Add(calm)))
		former[i] = gatewayPID(t, i, former[i])
		killed, answered := killUnderClaims(t, l, g, former[i], n)
		waitServing(t, l, g, steady[0])
		served[i] = time.Now()
		slowest = max(slowest, served[i].Sub(killed))
		answeredAtOnce += answered
		for j := range newPerRun {
			id := fmt.Sprintf("killed-%d-%d", n, j)
			onePod(t, l, id)
			made++
			if err := writes.EndSandbox(t.Context(), shared.Client, id, v1alpha1.EndReleased, "make room"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if slowest > recovery {
		t.Errorf("a killed gateway served again after %v, want %v", slowest, recovery)
	}
	l.judge()
	refused := 0
	for k, n := range l.status {
		switch {
		case strings.HasSuffix(k, " 503"):
			refused += n
		case !strings.HasSuffix(k, " 200"):
			t.Errorf("%d answers %s, want 200 or 503", n, k)
		}
	}
	t.Logf("%d kills; serving again after %v at most; %d requests refused with 503; %d sandboxes whose first request was under way, %d of them answered at once, each has one pod",
		kills, slowest.Round(time.Millisecond), refused, made, answeredAtOnce)
	if refused < kills || answeredAtOnce == made {
		t.Error("the kills met no request")
	}
}

// killUnderClaims sends first requests and kills the gateway some milliseconds later, each
// time a few milliseconds more. It returns the time of the kill, and how many requests a pod
// answered.
func killUnderClaims(t *testing.T, l *load, g stack.Gateway, pid, n int) (killed time.Time, answered int) {
	t.Helper()
	var claims sync.WaitGroup
	answers := make([]stack.Answer, newPerRun)
	for j := range newPerRun {
		c := newHTTP(t)
		claims.Go(func() { answers[j] = l.ask(c, g, fmt.Sprintf("killed-%d-%d", n, j)) })
	}
	<-time.After(time.Duration(n) * 2 * time.Millisecond)
	killed = time.Now()
	signal(t, pid, syscall.SIGKILL)
	claims.Wait()
	for _, a := range answers {
		if a.Echo != nil {
			answered++
		}
	}
	return killed, answered
}

// waitServing waits until the gateway has refused a request and then answered
// one.
func waitServing(t *testing.T, l *load, g stack.Gateway, id string) {
	t.Helper()
	c, refused := newHTTP(t), false
	shared.Eventually(t, 30*time.Second, g.Name+" to serve again", func() (bool, string) {
		a := l.ask(c, g, id)
		refused = refused || a.Echo == nil
		return refused && a.Echo != nil, a.String()
	})
}

// onePod sends a request for a sandbox through every gateway, and checks that one pod answers
// all and no other pod was ever claimed for the sandbox.
func onePod(t *testing.T, l *load, id string) {
	t.Helper()
	pods := map[string]bool{}
	for _, g := range shared.Up.Gateways {
		c := newHTTP(t)
		shared.Eventually(t, 20*time.Second, id+" to be served by "+g.Name, func() (bool, string) {
			a := l.ask(c, g, id)
			if a.Echo != nil {
				pods[a.Echo.PodUID] = true
			}
			return a.Echo != nil, a.String()
		})
	}
	shared.Eventually(t, 10*time.Second, "the claim in the record", func() (bool, string) {
		// Two watches tell of it, and either may be behind.
		return record.Pods(id) > 0 && record.Sandboxes(id) > 0, fmt.Sprintf("%d pods and %d sandboxes", record.Pods(id), record.Sandboxes(id))
	})
	if len(pods) != 1 || record.Pods(id) != 1 || record.Sandboxes(id) != 1 {
		t.Errorf("%s: answers from %v; %d pods and %d sandboxes on record, want one", id, pods, record.Pods(id), record.Sandboxes(id))
	}
}
