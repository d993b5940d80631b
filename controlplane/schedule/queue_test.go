package schedule

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/bubble"
)

// One tenant's thousand requests delay another's one by one pod, also when
// stock comes in one by one, and when the first tenant's claims lose their pods.
func TestTenantsTakeTurns(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		of := func(tenant string) func(*ClaimRequest) {
			return func(q *ClaimRequest) { q.Tenant = tenant }
		}
		var many []*ClaimRequest
		for i := range 1000 {
			many = append(many, r.ask(t, fmt.Sprint("many", i), time.Hour, of("one")))
		}
		single := r.ask(t, "single", time.Hour, of("two"))
		lone := r.ask(t, "lone", time.Hour, of("three"))
		r.stockUp("p1")
		gets(t, many[0], "p1")
		r.stockUp("p2")
		gets(t, single, "p2")
		r.stockUp("p3")
		gets(t, lone, "p3")
		r.stockUp("p4")
		gets(t, many[1], "p4")

		again := r.ask(t, "again", time.Hour, of("two"))
		r.api.answers(once("claim p5", func(func() error) error {
			<-time.After(time.Second) // the loss comes when p6 has been offered
			return statusError(404, metav1.StatusReasonNotFound, nil)
		}))
		r.stockUp("p5", "p6") // of tenant one's turn and tenant two's
		gets(t, again, "p6")
		<-time.After(2 * time.Second)
		r.stockUp("p7")
		gets(t, many[2], "p7") // lost p5 and kept its turn
		waits(t, many[3])
	}, WithQueueSize(2000))
}

// Whatever comes and goes, a tenant's requests are served in order, no tenant waits
// for more than one pod for each other tenant, and no request is lost or served
// twice.
func TestTurnsAreFair(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		w := newWaiting(1 << 20)
		waitingFor := map[*entry]int{} // pods given to others while it stood first of its tenant
		lines := map[string][]*entry{}
		for range 2000 {
			tenant := fmt.Sprint(rnd.IntN(4))
			switch n := rnd.IntN(10); {
			case n < 5:
				e := &entry{ClaimRequest: &ClaimRequest{Tenant: tenant}}
				w.push(e, false)
				lines[tenant] = append(lines[tenant], e)
			case n < 6 && len(lines[tenant]) > 0: // its client leaves
				at := rnd.IntN(len(lines[tenant]))
				w.remove(lines[tenant][at])
				lines[tenant] = slices.Delete(lines[tenant], at, at+1)
			default:
				e := w.first()
				if e == nil {
					continue
				}
				if lines[e.Tenant][0] != e {
					t.Fatalf("seed %d: tenant %s is not served in order", seed, e.Tenant)
				}
				w.pop(e)
				lines[e.Tenant] = lines[e.Tenant][1:]
				for _, line := range lines {
					if len(line) > 0 {
						waitingFor[line[0]]++
					}
				}
				if n := waitingFor[e]; n > 4 {
					t.Fatalf("seed %d: a tenant's first request saw %d pods go to others", seed, n)
				}
			}
			left := 0
			for _, line := range lines {
				left += len(line)
			}
			if w.len() != left || (w.first() == nil) != (left == 0) {
				t.Fatalf("seed %d: %d wait, want %d", seed, w.len(), left)
			}
		}
	}
}

// flagged is a context whose Err says that it is done from the call number `after` on,
// while its Done channel stays open.
type flagged struct {
	context.Context
	looks, after int
}

func (f *flagged) Done() <-chan struct{} { return nil }
func (f *flagged) Err() error {
	if f.looks++; f.looks > f.after {
		return context.Canceled
	}
	return nil
}

// A request whose client has left takes no pod, however late that is noticed:
// nothing is bound, nothing written, and the pod serves the next.
func TestCancelledRequestTakesNoPod(t *testing.T) {
	for after, name := range []string{"before it is given a pod", "before the claim begins"} {
		t.Run(name, func(t *testing.T) {
			onRig(t, func(t *testing.T, r *rig) {
				var b binds
				q := r.ask(t, "a", time.Hour, b.on, func(q *ClaimRequest) { q.Ctx = &flagged{context.Background(), 0, after} })
				next := r.ask(t, "b", time.Hour)
				r.stockUp("p1")
				fails(t, q, context.Canceled)
				gets(t, next, "p1")
				if len(b.bound) > 0 || r.api.count("claim") != 1 {
					t.Errorf("bound %v, calls %v", b.bound, r.api.calls)
				}
			})
		})
	}
}

// At its deadline a request is over even if its timer is late.
func TestPastDeadlineTakesNoPod(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		s := NewPoolScheduler("ns", "pool", "", "", api) // not running
		q := &ClaimRequest{SandboxID: "a", Deadline: time.Now().Add(time.Second), ResultCh: newResults(1)}
		s.Enqueue(q)
		s.Offer(api.idle("p1"))
		s.mu.Lock() // keeps its timer from answering
		time.Sleep(time.Second)
		err := s.waiting.first().tooLate(time.Now())
		s.mu.Unlock()
		if !errors.Is(err, ErrDeadline) {
			t.Errorf("a request at its deadline may take a pod: %v", err)
		}
		synctest.Wait()
		fails(t, q, ErrDeadline)
		s.Shutdown()
	})
}

// Pods that have the wanted images already go first: the claim changes nothing
// and the sandbox runs at once. Otherwise the oldest is changed, in one PATCH.
func TestPodsThatFitArePreferred(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		offer := func(name, image string) {
			r.api.idle(name)
			r.api.change(name, func(p *corev1.Pod) { p.Spec.Containers[0].Image = image })
			r.Offer(r.api.pod(name))
		}
		want := func(image string) func(*ClaimRequest) {
			return func(q *ClaimRequest) { q.Opts.ContainerImages = map[string]string{"main": image} }
		}
		ask := func(id, image, pod string, phase v1alpha1.PodPhase) {
			t.Helper()
			got := gets(t, r.ask(t, id, time.Minute, want(image)), pod)
			if got.Spec.Containers[0].Image != image || v1alpha1.PhaseOf(got) != phase {
				t.Errorf("%s has image %s and is %s", pod, got.Spec.Containers[0].Image, v1alpha1.PhaseOf(got))
			}
		}
		offer("p1", "a")
		offer("p2", "a")
		offer("p3", "c")
		offer("p4", "d")
		offer("p5", "c")
		ask("r1", "c", "p3", v1alpha1.PodRunning)
		ask("r2", "c", "p5", v1alpha1.PodRunning)
		ask("r3", "c", "p1", v1alpha1.PodStarting) // none fits any more
		gets(t, r.ask(t, "r4", time.Minute), "p2") // asks for no image: the oldest
		fails(t, r.ask(t, "r5", time.Minute, func(q *ClaimRequest) {
			q.Opts.ContainerImages = map[string]string{"main": "d", "none": "d"}
		}), ErrInvalid)
		ask("r6", "d", "p4", v1alpha1.PodRunning)
		synctest.Wait()
		if n := r.api.count("claim"); n != 5 {
			t.Errorf("%d claim PATCHes for five claims", n)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, one := range r.stock.shapes {
			if one.ready != 0 || one.pods != 1 && one.pods != 2 {
				t.Errorf("shape %v: %d pods, %d ready", one.containers, one.pods, one.ready)
			}
		}
	})
}

// A pod whose images change while it waits is known by its new ones, and shapes
// that no pod has are forgotten.
func TestShapesFollowTheirPods(t *testing.T) {
	s := newStock(time.Minute, 0)
	for i := range 100 {
		pod := idlePod("ns", "p")
		pod.Spec.Containers[0].Image = fmt.Sprint(i)
		s.offer(pod)
		if len(s.shapes) != 1 || s.shapes[0].pods != 1 || s.shapes[0].ready != 1 {
			t.Fatalf("%d shapes, the first %+v", len(s.shapes), s.shapes[0])
		}
	}
	if rec := s.pick(map[string]string{"main": "99"}); s.shapes[0].fit != fitsAsIs || rec.shape.containers[0].image != "99" {
		t.Error("the pod's last image is not known")
	}
	s.forget("uid-p")
	s.giveBack(s.pods["uid-p"], true)
	if len(s.pods)+len(s.shapes)+len(s.queue) != 0 {
		t.Errorf("%d pods, %d shapes, %d in the queue are left", len(s.pods), len(s.shapes), len(s.queue))
	}
}

// The gauge of reservations falls when the feed shows that a claimed pod has left idle,
// not when its reservation would have expired.
func TestReservationsAreGaugedByTheFeed(t *testing.T) {
	s := NewPoolScheduler("ns", "pool", "", "", newFakeAPI())
	reserved := func() float64 { return testutil.ToFloat64(s.metrics.reservations) }
	pod := idlePod("ns", "p")
	s.Offer(pod)
	s.mu.Lock()
	s.stock.cool(s.stock.pick(nil), time.Now())
	s.measure()
	s.mu.Unlock()
	if got := reserved(); got != 1 {
		t.Fatalf("%v reservations of a claimed pod, want 1", got)
	}
	s.Forget(pod.UID)
	if got := reserved(); got != 0 {
		t.Errorf("%v reservations after the pod left idle, want 0", got)
	}
}

// What a person is told says what to do.
func TestErrorsSayWhatToDo(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		is   error
		says []string
	}{
		{"forbidden", statusError(403, metav1.StatusReasonForbidden, nil), ErrForbidden, []string{"pod ns/p1", "needs get and patch"}},
		{"unauthorised", statusError(401, metav1.StatusReasonUnauthorized, nil), ErrForbidden, []string{"needs get and patch"}},
		{"invalid", invalidImage(), ErrInvalid, []string{"spec.containers[0].image: bad", "correct"}},
		{"too large", statusError(413, metav1.StatusReasonRequestEntityTooLarge, nil), ErrInvalid, []string{"status 413"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onRig(t, func(t *testing.T, r *rig) {
				r.stockUp("p1", "p2")
				r.api.answers(once("claim p1", func(func() error) error { return tc.err }))
				res := result(t, r.ask(t, "a", time.Minute))
				if !errors.Is(res.Err, tc.is) {
					t.Fatalf("got %v", res.Err)
				}
				for _, words := range tc.says {
					if !strings.Contains(res.Err.Error(), words) {
						t.Errorf("%q does not say %q", res.Err, words)
					}
				}
			})
		})
	}
	bubble.Test(t, func(t *testing.T) {
		s := NewSet(newFakeAPI())
		s.PoolChanged("ns", "pool", true)
		one, _ := s.Get("ns", "pool")
		q := &ClaimRequest{SandboxID: "a", ResultCh: newResults(1)}
		one.Enqueue(q)
		s.PoolChanged("ns", "pool", false)
		fails(t, q, ErrPoolGone)
		s.Shutdown()
	})
}

// However many requests and pods there are, a bounded number of claims is under
// way; a request that waits for its turn can leave, and all others are served.
func TestClaimsUnderWayAreBounded(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		const n = 3 * firstClaims
		proceed := make(chan struct{})
		r.api.answers(func(_ string, apply func() error) error { <-proceed; return apply() })
		for i := range n {
			r.stockUp(fmt.Sprint("p", i))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all []*ClaimRequest
		for i := range n - 1 {
			all = append(all, r.ask(t, fmt.Sprint("s", i), time.Minute))
		}
		left := r.ask(t, "left", time.Minute, func(q *ClaimRequest) { q.Ctx = ctx })
		synctest.Wait()
		if got := r.api.count("claim"); got != firstClaims {
			t.Errorf("%d claims are under way, want %d", got, firstClaims)
		}
		cancel()
		fails(t, left, context.Canceled)
		close(proceed)
		for _, q := range all {
			if res := result(t, q); res.Err != nil {
				t.Error(res.Err)
			}
		}
	})
}
