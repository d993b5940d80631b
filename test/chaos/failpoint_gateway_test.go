package chaos

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/stack"
)

const (
	// underWay is how many claims are held at the point when their gateway is killed.
	underWay = 4
	// downAsks is how many requests an Envoy gets while its gateway certainly does not run.
	downAsks = 10
	// longestTrust is how long Envoy answers known routes without its gateway (fastpath).
	longestTrust = time.Second
)

// A gateway is killed with claims between the binding and the pod PATCH, and with claims
// after the PATCH whose clients have no answer yet. Its Envoy answers 503 and routes nothing,
// the gateway serves again by itself, and each claim is completed: the same claim on the same
// pod, whichever gateway gets the next request, and also without a request.
func TestGatewayKilledAtTheClaim(t *testing.T) {
	for _, at := range []struct {
		point   string
		claimed bool // the claims are on their pods
	}{{"schedule/bound", false}, {"schedule/claimed", true}} {
		t.Run(strings.ReplaceAll(at.point, "/", "-"), func(t *testing.T) { gatewayKilledAt(t, at.point, at.claimed) })
	}
}

// flying is a claim that was under way when its gateway was killed.
type flying struct {
	id      string
	binding v1alpha1.Binding
}

func gatewayKilledAt(t *testing.T, point string, claimed bool) {
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "pool", 3*underWay, stack.WithIdleTimeout(0))
	l := newLoad(t, ns+"/pool")
	steady := ns + "-steady"
	shared.Touch(t, steady, l.pool)
	for _, g := range shared.Up.Gateways {
		l.hammer(g, 25*time.Millisecond, func() string { return steady }, nil)
	}
	var slowest time.Duration
	former := make([]int, len(shared.Up.Gateways))
	found, held, down, alone := 0, 0, 0, 0
	for n := range kills {
		i := n % len(former)
		g := shared.Up.Gateways[i]
		waitStock(t, ns, underWay+2)
		former[i] = gatewayPID(t, i, former[i])
		claims, killed := killHeld(t, l, g, former[i], point, fmt.Sprintf("%s-%d", ns, n), claimed)
		for _, f := range claims {
			if on(t, ns, f) == claimed {
				held++
			}
		}
		down += refusedWhileDown(t, l, g, steady, killed)
		disarm(t, upItself, "supervise/"+g.Name)
		findByOthers(t, l, i, claims)
		c := newHTTP(t)
		shared.Eventually(t, 30*time.Second, g.Name+" to serve again", func() (bool, string) {
			a := l.ask(c, g, steady)
			return a.Echo != nil, a.String()
		})
		slowest = max(slowest, time.Since(killed))
		last := claims[underWay-1]
		if n%5 == 0 { // no request comes for this one
			shared.Eventually(t, 20*time.Second, last.id+" to get its pod without a request", func() (bool, string) {
				return on(t, ns, last), "not claimed"
			})
			alone++
		}
		for _, f := range claims {
			onePod(t, l, f.id)
			if all := record.Claims(f.id); len(all) == 1 && all[0].Claim == f.binding.ClaimID && all[0].PodUID == f.binding.PodUID {
				found++
			} else {
				t.Errorf("%s was bound by %+v when its gateway was killed, and has the claims %+v", f.id, f.binding, all)
			}
			if err := writes.EndSandbox(t.Context(), shared.Client, f.id, v1alpha1.EndReleased, "make room"); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.judge()
	for k, n := range l.status {
		if !strings.HasSuffix(k, " 200") && !strings.HasSuffix(k, " 503") {
			t.Errorf("%d answers %s, want 200 or 503", n, k)
		}
	}
	t.Logf("%d kills at %s with %d claims under way, %d of them at the point until the end, %d completed as they were, %d without a request; %d requests to an Envoy without gateway, all refused; serving again after %v at most",
		kills, point, kills*underWay, held, found, alone, down, slowest.Round(time.Millisecond))
	if slowest > recovery {
		t.Errorf("a killed gateway served again after %v, want %v", slowest, recovery)
	}
	if held < kills*underWay*3/4 {
		t.Errorf("only %d of %d claims were at %s when their gateway was killed", held, kills*underWay, point)
	}
	if found != kills*underWay || down != kills*downAsks {
		t.Errorf("%d of %d claims found again; %d of %d requests refused while the gateway was away", found, kills*underWay, down, kills*downAsks)
	}
}

// killHeld sends first requests, waits until all their claims are held at the point, and
// makes the gateway kill itself there. `up` starts no other gateway before disarm. None of
// the requests may be answered by a pod.
func killHeld(t *testing.T, l *load, g stack.Gateway, pid int, point, prefix string, claimed bool) ([]flying, time.Time) {
	t.Helper()
	arm(t, g.Name, point, "hold")
	arm(t, upItself, "supervise/"+g.Name, "hold")
	claims := make([]flying, underWay)
	answers := make([]stack.Answer, underWay)
	var asking sync.WaitGroup
	for j := range claims {
		claims[j].id = fmt.Sprintf("%s-%d", prefix, j)
		c := newHTTP(t)
		asking.Go(func() { answers[j] = l.ask(c, g, claims[j].id) })
	}
	for j := range claims {
		f := &claims[j]
		shared.Eventually(t, 10*time.Second, f.id+" to get to "+point, func() (bool, string) {
			s, ok := shared.Sandbox(t, f.id)
			if !ok || s.Spec.Binding == nil {
				return false, "not bound"
			}
			f.binding = *s.Spec.Binding
			return !claimed || on(t, s.Spec.Namespace, *f), "bound, not claimed"
		})
	}
	arm(t, g.Name, point, "kill")
	waitHit(t, g.Name, point)
	waitReaped(t, pid)
	killed := time.Now()
	asking.Wait()
	for j, a := range answers {
		if a.Status != http.StatusServiceUnavailable {
			t.Errorf("%s, whose gateway was killed at %s, was answered %v, want 503", claims[j].id, point, a)
		}
	}
	return claims, killed
}

// on reports whether the pod that the sandbox was bound to carries its claim.
func on(t *testing.T, ns string, f flying) bool {
	t.Helper()
	var pod corev1.Pod
	err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: f.binding.PodName}, &pod)
	if client.IgnoreNotFound(err) != nil {
		t.Fatalf("read pod %s: %v", f.binding.PodName, err)
	}
	return err == nil && string(pod.UID) == f.binding.PodUID && pod.Annotations[v1alpha1.AnnotationClaim] == f.binding.ClaimID
}

// refusedWhileDown sends requests for a running sandbox while there is no gateway, and
// returns how often Envoy answered 503. With the fast path Envoy may answer for longestTrust
// after the kill, and no longer.
func refusedWhileDown(t *testing.T, l *load, g stack.Gateway, id string, killed time.Time) (refused int) {
	t.Helper()
	c := newHTTP(t)
	for refused < downAsks {
		asked := time.Now()
		switch a := l.ask(c, g, id); {
		case a.Status == http.StatusServiceUnavailable:
			refused++
		case refused > 0 || !l.stack.FastPath || asked.After(killed.Add(longestTrust)):
			t.Errorf("%s answered without its gateway, asked %v after its kill: %v", g.Name, asked.Sub(killed), a)
			return refused
		}
	}
	return refused
}

// findByOthers sends requests for two of the sandboxes through the two gateways that run:
// each sandbox gets the pod to which it was bound, while the claim's owner does not run.
func findByOthers(t *testing.T, l *load, dead int, claims []flying) {
	t.Helper()
	gateways := shared.Up.Gateways
	var asking sync.WaitGroup
	for j := range len(gateways) - 1 {
		f, g, c := claims[j], gateways[(dead+1+j)%len(gateways)], newHTTP(t)
		asking.Go(func() {
			if a := l.ask(c, g, f.id); a.Echo == nil || a.Echo.PodUID != f.binding.PodUID {
				t.Errorf("%s, asked for through %s while its gateway is away: %v, want pod %s", f.id, g.Name, a, f.binding.PodUID)
			}
		})
	}
	asking.Wait()
}

// waitStock waits until the namespace has n idle pods or more.
func waitStock(t *testing.T, ns string, n int) {
	t.Helper()
	shared.Eventually(t, 90*time.Second, fmt.Sprintf("%d idle pods", n), func() (bool, string) {
		idle := 0
		for _, p := range shared.PodsOf(t, ns) {
			if v1alpha1.PhaseOf(&p) == v1alpha1.PodIdle && p.DeletionTimestamp == nil {
				idle++
			}
		}
		return idle >= n, fmt.Sprint(idle)
	})
}
