package chaos

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/history"
	"github.com/sandlane/sandlane/test/stack"
)

// How much TestReleaseUnderFire must have done at least.
const (
	wantEnds   = 300
	wantReused = 200
)

// slot is one of the sandboxes at a time. When the sandbox of a slot ends, another follows
// it: under a new ID if it was ended, under the same ID if it was deleted.
type slot struct {
	mu       sync.Mutex
	id, last string          // clients ask for both
	gone     map[string]bool // pods of earlier claims
	live     int             // answers of the present claim
}

func (s *slot) current() string { s.mu.Lock(); defer s.mu.Unlock(); return s.id }
func (s *slot) former() string  { s.mu.Lock(); defer s.mu.Unlock(); return s.last }

// seen counts the answers of the present claim.
func (s *slot) seen(id string, a stack.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.Echo != nil && id == s.id && !s.gone[a.Echo.PodUID] {
		s.live++
	}
}

// Clients send many requests to sandboxes while these are ended or deleted and their
// addresses serve other sandboxes at once. No answer comes from another sandbox's pod.
func TestReleaseUnderFire(t *testing.T) {
	for name, gateways := range map[string][]stack.Gateway{
		"one gateway of three": shared.Up.Gateways[:1], "three gateways": shared.Up.Gateways,
	} {
		t.Run(name, func(t *testing.T) { releaseUnderFire(t, shared, record, gateways) })
	}
}

func releaseUnderFire(t *testing.T, on *stack.Stack, record *history.Recorder, gateways []stack.Gateway) {
	const slots = 12
	ns := on.Namespace(t)
	on.Pool(t, ns, "pool", 10, stack.WithIdleTimeout(0))
	l := newLoadOn(t, on, record, ns+"/pool")
	// This takes some two minutes, or longer on a busy machine.
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	before, began := record.Reused(), time.Now()
	var mu sync.Mutex
	ended, deleted := 0, 0
	more := func() bool { mu.Lock(); defer mu.Unlock(); return ended+deleted < wantEnds && ctx.Err() == nil }
	var enders sync.WaitGroup
	for i := range slots {
		prefix := fmt.Sprintf("%s-%d", ns, i)
		s := &slot{id: prefix + "-0", gone: map[string]bool{}}
		for _, g := range gateways {
			l.hammer(g, 25*time.Millisecond, s.current, s.seen)
			l.hammer(g, 100*time.Millisecond, s.former, nil)
		}
		enders.Go(func() {
			for n := 1; more(); n++ {
				if !s.waitLive(ctx, 5*len(gateways)) {
					return
				}
				pod := s.pod(t, on)
				var err error
				if n%3 == 0 {
					err = on.Client.Delete(ctx, &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: s.current()}})
				} else {
					err = writes.EndSandbox(ctx, on.Client, s.current(), v1alpha1.EndReleased, "under fire")
				}
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("end %s: %v", s.current(), err)
					}
					return
				}
				mu.Lock()
				s.mu.Lock()
				s.gone[pod], s.live = true, 0
				if n%3 == 0 {
					deleted++
				} else {
					ended++
					s.last, s.id = s.id, fmt.Sprintf("%s-%d", prefix, n)
				}
				s.mu.Unlock()
				mu.Unlock()
			}
		})
	}
	enders.Wait()
	took := time.Since(began)
	l.judge()
	reused := record.Reused() - before
	t.Logf("%d sandboxes ended and %d deleted under load through %d gateways in %v; %d addresses used again by another sandbox",
		ended, deleted, len(gateways), took.Round(time.Second), reused)
	if ended+deleted < wantEnds || reused < wantReused {
		t.Errorf("that is too little: want %d ends and %d addresses used again", wantEnds, wantReused)
	}
}

// waitLive waits until the present claim has answered n times.
func (s *slot) waitLive(ctx context.Context, n int) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		s.mu.Lock()
		live := s.live
		s.mu.Unlock()
		if live >= n {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// pod is the pod that the present sandbox is bound to.
func (s *slot) pod(t *testing.T, on *stack.Stack) string {
	sb, found := on.Sandbox(t, s.current())
	if !found || sb.Spec.Binding == nil {
		return ""
	}
	return sb.Spec.Binding.PodUID
}
