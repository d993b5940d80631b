package activation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

// faulty returns a client whose creates, patches and reads pass through fault.
func faulty(c client.WithWatch, fault func(obj client.Object, call func() error) error) client.Client {
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return fault(o, func() error { return c.Create(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return fault(o, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return fault(o, func() error { return c.Get(ctx, k, o, opts...) })
		},
	})
}

// Timeouts before and after the write, 5xx and 429 on a third of all calls:
// every sandbox still gets one pod, and no pod two sandboxes.
func TestActivationUnderFaults(t *testing.T) {
	w := newWorld(t)
	const ids, gateways = 30, 2
	w.idle(4 * ids)
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(1, 2))
	fault := func(_ client.Object, call func() error) error {
		mu.Lock()
		n := rnd.IntN(15)
		mu.Unlock()
		switch n {
		case 0:
			return context.DeadlineExceeded
		case 1:
			return errors.Join(call(), context.DeadlineExceeded)
		case 2:
			return apierrors.NewInternalError(errors.New("etcd leader changed"))
		case 3:
			_ = call()
			return apierrors.NewTimeoutError("after", 0)
		case 4:
			return apierrors.NewTooManyRequests("slow down", 1)
		}
		return call()
	}
	var gs []*gateway
	for i := range gateways {
		gs = append(gs, w.gateway(faulty(w.c, fault), schedule.WithSeed(uint64(i))))
	}
	prefix := kubetest.Name("fault")
	id := func(i int) string { return fmt.Sprintf("%s-%d", prefix, i%ids) }
	for i, err := range together(ids*gateways, func(i int) error {
		return gs[i/ids].Activate(t.Context(), w.request(id(i), true, 45*time.Second))
	}) {
		if err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	for i := range ids {
		s := w.sandbox(id(i))
		var pod corev1.Pod
		key := client.ObjectKey{Namespace: w.ns, Name: s.Spec.Binding.PodName}
		if err := w.c.Get(t.Context(), key, &pod); err != nil || claimStateOf(s, &pod) != claimRuns {
			t.Errorf("sandbox %s, bound to %+v: %v", s.Name, s.Spec.Binding, err)
		}
		for _, g := range gs {
			if r := g.cache.Get(id(i)); r != nil && r.PodUID != string(pod.UID) {
				t.Errorf("sandbox %s has a route to another pod: %+v", s.Name, r)
			}
		}
	}
}

// A sandbox whose pod has ended by the time that the claim is known to have landed
// may have run. It keeps its binding and gets no other pod, which would be empty;
// its requests wait for its end.
func TestClaimThatIsOverWaitsForTheEnd(t *testing.T) {
	w := newWorld(t)
	w.idle(2)
	id := kubetest.Name("over")
	var first sync.Once
	fault := func(o client.Object, call func() error) error {
		err, lost := call(), false
		if pod, ok := o.(*corev1.Pod); ok && err == nil && pod.Labels[v1alpha1.LabelSandboxID] == id {
			first.Do(func() {
				pod.Labels[v1alpha1.LabelPhase], lost = string(v1alpha1.PodFailed), true
				err = w.c.Update(t.Context(), pod)
			})
		}
		if lost && err == nil {
			return context.DeadlineExceeded
		}
		return err
	}
	g := w.gateway(faulty(w.c, fault))
	g.fails(t, w.request(id, true, 3*time.Second), ErrNotReady)
	s, claimed := w.sandbox(id), 0
	for _, p := range w.pods() {
		if v1alpha1.Backs(&p, s) && v1alpha1.PhaseOf(&p) == v1alpha1.PodFailed {
			claimed++
		} else if v1alpha1.PhaseOf(&p) != v1alpha1.PodIdle {
			t.Errorf("pod %s is %s", p.Name, v1alpha1.PhaseOf(&p))
		}
	}
	if claimed != 1 || g.cache.Get(id) != nil {
		t.Errorf("binding %+v is backed by %d pods; route %v", s.Spec.Binding, claimed, g.cache.Get(id))
	}
	s.Spec.End = &v1alpha1.End{Reason: v1alpha1.EndFailed, At: metav1.Now()}
	if err := w.c.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	g.fails(t, w.request(id, true, 3*time.Second), routing.ErrEnded)
}

// An invalid claim stays invalid, whichever gateway sends it. One that is forbidden to
// this gateway may be on the pod already, sent by another.
func TestBindingOfAFailedClaim(t *testing.T) {
	cause := &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: "spec", Message: "bad"}}}
	for _, tc := range []struct {
		want  error
		err   error
		stays bool
	}{
		{routing.ErrInvalid, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Details: cause,
		}}, false},
		{routing.ErrNotPermitted, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("no")), true},
	} {
		t.Run(tc.want.Error(), func(t *testing.T) {
			w := newWorld(t)
			w.idle(1)
			g := w.gateway(faulty(w.c, func(o client.Object, call func() error) error {
				if _, pod := o.(*corev1.Pod); pod {
					return tc.err
				}
				return call()
			}))
			id := kubetest.Name("no")
			g.fails(t, w.request(id, true, 10*time.Second), tc.want)
			if s := w.sandbox(id); (s.Spec.Binding != nil) != tc.stays || s.Spec.End != nil {
				t.Errorf("sandbox %+v", s.Spec)
			}
			if p := w.pods()[0]; v1alpha1.PhaseOf(&p) != v1alpha1.PodIdle {
				t.Errorf("pod is %s", v1alpha1.PhaseOf(&p))
			}
		})
	}
}

// One gateway's claim PATCH does not reach the API server; another gateway's follower sends
// it. The sandbox still runs when the first gateway gives up.
func TestFollowersClaimSurvivesItsOwner(t *testing.T) {
	w := newWorld(t)
	w.idle(1)
	owner := w.gateway(faulty(w.c, func(o client.Object, call func() error) error {
		if _, pod := o.(*corev1.Pod); pod {
			return apierrors.NewTooManyRequests("slow down", 60)
		}
		return call()
	}))
	id := kubetest.Name("kept")
	gaveUp := make(chan error, 1)
	go func() { gaveUp <- owner.Activate(t.Context(), w.request(id, true, 4*time.Second)) }()
	kubetest.Eventually(t, "the binding", func() error {
		s := &v1alpha1.Sandbox{}
		return w.c.Get(t.Context(), client.ObjectKey{Name: id}, s)
	})
	w.gateway(w.c).activates(t, w.request(id, false, 10*time.Second))
	if err := <-gaveUp; !errors.Is(err, routing.ErrUnavailable) {
		t.Errorf("the owner: %v", err)
	}
	owner.set.Shutdown() // waits until the owner's claim is over
	w.backed(id)
}

func TestInvalidSandboxIsNotRetried(t *testing.T) {
	w := newWorld(t)
	w.idle(1)
	g := w.gateway(w.c)
	start := time.Now()
	g.fails(t, w.request("Not_An_ID", true, 10*time.Second), routing.ErrInvalid)
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
}

func TestAPIServerAway(t *testing.T) {
	w := newWorld(t)
	w.idle(1)
	for name, err := range map[string]error{
		"unreachable": &net.OpError{Op: "dial", Err: errors.New("connection refused")},
		"503": &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
		}},
		"429": apierrors.NewTooManyRequests("slow down", 60),
	} {
		t.Run(name, func(t *testing.T) {
			g := w.gateway(faulty(w.c, func(client.Object, func() error) error { return err }))
			for _, isNew := range []bool{true, false} {
				got := g.fails(t, w.request(kubetest.Name("away"), isNew, time.Second), routing.ErrUnavailable)
				var again *RetryError
				if !errors.As(got, &again) || again.RetryAfter() <= 0 {
					t.Errorf("no Retry-After: %v", got)
				}
			}
		})
	}
}
