package chaos

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/stack"
)

// firstRounds is how often TestOneClaimOverGateways asks for a new ID.
const firstRounds = 100

// 200 simultaneous first requests for one new ID over three gateways: one
// Sandbox, one claim, 200 answers from one pod.
func TestOneClaimOverGateways(t *testing.T) {
	const clients = 200
	ns := shared.Namespace(t)
	// Three idle pods let each gateway reserve one; the pods of earlier rounds are replaced
	// meanwhile.
	shared.Pool(t, ns, "pool", 12, stack.WithIdleTimeout(0))
	began := time.Now()
	l := newLoad(t, ns+"/pool")
	var slowest time.Duration
	// Each client keeps its connection from round to round, so that after the barrier all
	// send requests at once, without handshakes.
	type client struct {
		gateway stack.Gateway
		ask     func(id string) stack.Answer
	}
	var all []client
	var opened sync.WaitGroup
	for i := range clients {
		g, c := shared.Up.Gateways[i%3], newHTTP(t)
		all = append(all, client{g, func(id string) stack.Answer { return l.ask(c, g, id) }})
		opened.Go(func() { l.ask(c, g, "never-made-"+fmt.Sprint(i)+"-") }) // refused: 400
	}
	opened.Wait()
	l.errs, l.status = nil, map[string]int{}
	for round := range firstRounds {
		id := fmt.Sprintf("first-%d", round)
		waitStock(t, ns, 3)
		answers := make([]stack.Answer, clients)
		barrier, asking := make(chan struct{}), sync.WaitGroup{}
		for i, c := range all {
			asking.Go(func() {
				<-barrier
				answers[i] = c.ask(id)
			})
		}
		start := time.Now()
		close(barrier)
		asking.Wait()
		slowest = max(slowest, time.Since(start))
		pods := map[string]int{}
		for i, a := range answers {
			if a.Echo == nil {
				t.Fatalf("round %d, %s: %v", round, all[i].gateway.Name, a)
			}
			pods[a.Echo.PodUID+" "+a.Echo.Process]++
		}
		if len(pods) != 1 {
			t.Errorf("round %d: answers came from %v, want one pod", round, pods)
		}
		if err := writes.EndSandbox(t.Context(), shared.Client, id, v1alpha1.EndReleased, "the round is over"); err != nil {
			t.Fatal(err)
		}
	}
	l.judge()
	for round := range firstRounds {
		id := fmt.Sprintf("first-%d", round)
		shared.Eventually(t, 10*time.Second, "the claim in the record", func() (bool, string) {
			return record.Pods(id) > 0 && record.Sandboxes(id) > 0, "nothing"
		})
		if s, c, p := record.Sandboxes(id), len(record.Claims(id)), record.Pods(id); s != 1 || c != 1 || p != 1 {
			t.Errorf("%s: %d sandboxes, %d claims on %d pods, want one each", id, s, c, p)
		}
	}
	t.Logf("%d rounds of %d requests over 3 gateways, each one Sandbox, one claim and one pod; the slowest round took %v, all of them %v",
		firstRounds, clients, slowest.Round(time.Millisecond), time.Since(began).Round(time.Second))
}
