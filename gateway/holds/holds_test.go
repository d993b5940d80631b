package holds

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/inuse"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/bubble"
	"github.com/sandlane/sandlane/test/kubetest"
)

// held is a gateway that holds the claim "c" of sandbox "s" for token "t", and an
// API server that shows the same, until change changes it.
type held struct {
	*Holds
	t       *testing.T
	patches atomic.Int32
	away    atomic.Pointer[error] // what the API server says instead of answering; nil = it answers
}

func (h *held) goAway(err error) { h.away.Store(&err) }

func newHeld(t *testing.T) *held {
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	s.Spec.Namespace, s.Spec.Pool = "n", "p"
	s.Spec.Binding = &v1alpha1.Binding{ClaimID: "c", PodName: "pod", PodUID: "uid"}
	s.Spec.Release = &v1alpha1.Release{Token: "t", ClaimID: "c"}
	h := &held{t: t}
	c := fake.NewClientBuilder().WithScheme(kubetest.Scheme()).WithObjects(s).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			h.patches.Add(1)
			if err := h.away.Load(); err != nil {
				return *err
			}
			err := c.Patch(ctx, o, p, opts...)
			if err != nil && !apierrors.IsNotFound(err) { // as the API server says it
				return apierrors.NewGenericServerResponse(422, "patch", v1alpha1.GroupVersion.WithResource("sandboxes").GroupResource(), "s", err.Error(), 0, false)
			}
			return err
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := h.away.Load(); err != nil {
				return *err
			}
			return c.Get(ctx, key, o, opts...)
		},
	}).Build()
	h.Holds = New(inuse.NewRegistry(nil), nil, routecache.New(0), c)
	h.usage.ClaimUse("s", "c").Touch(1)
	h.usage.Hold("s", "c", "t")
	return h
}

func (h *held) read() *v1alpha1.Sandbox {
	h.t.Helper()
	s := &v1alpha1.Sandbox{}
	if err := h.client.Get(h.t.Context(), client.ObjectKey{Name: "s"}, s); err != nil {
		h.t.Fatal(err)
	}
	return s
}

func (h *held) change(how func(*v1alpha1.Sandbox)) {
	h.t.Helper()
	s := h.read()
	how(s)
	if err := h.client.Update(h.t.Context(), s); err != nil {
		h.t.Fatal(err)
	}
}

// ended is what the controller's commit leaves.
func ended(s *v1alpha1.Sandbox) {
	s.Spec.End = &v1alpha1.End{Reason: v1alpha1.EndIdleTimeout, At: metav1.Now()}
}

func (h *held) stillHeld() bool { _, ok := h.usage.HeldNow("s", "c"); return ok }

// No controller commits or cancels the release: after two seconds the gateway removes
// its token, once for all requests that wait, and it cannot be carried out any more.
func TestHeldRequestCallsTheReleaseOff(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHeld(t)
		start := time.Now()
		var waiting sync.WaitGroup
		for range 100 {
			waiting.Go(func() {
				if err := h.Await(t.Context(), "s", "c"); err != nil {
					t.Error(err)
				}
				if took := time.Since(start); took != maxHeld {
					t.Errorf("waited %v", took)
				}
			})
		}
		waiting.Wait()
		if s := h.read(); s.Spec.Release != nil || s.Spec.End != nil || h.stillHeld() || h.patches.Load() != 1 {
			t.Errorf("left %+v, held %v, %d patches", s.Spec, h.stillHeld(), h.patches.Load())
		}
	})
}

// A request that comes when the others have waited does not wait anew.
func TestLateRequestDoesNotWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHeld(t)
		time.Sleep(time.Minute)
		start := time.Now()
		if err := h.Await(t.Context(), "s", "c"); err != nil || time.Since(start) != 0 || h.stillHeld() {
			t.Errorf("%v after %v, held %v", err, time.Since(start), h.stillHeld())
		}
	})
}

// The outcome of a release that the gateway was too late to call off.
func TestOutcomeOfAHeldRequest(t *testing.T) {
	for _, tc := range []struct {
		name string
		then func(h *held)
		want error
		held bool
	}{
		{name: "it ended", then: func(h *held) { h.change(ended) }, want: routing.ErrNotFound, held: true},
		{name: "it is gone", then: func(h *held) {
			if err := h.client.Delete(h.t.Context(), h.read()); err != nil {
				h.t.Error(err)
			}
		}, want: routing.ErrNotFound, held: true},
		{name: "the controller called it off and the watch is behind", then: func(h *held) {
			h.change(func(s *v1alpha1.Sandbox) { s.Spec.Release = nil })
		}},
		{name: "another controller began anew", then: func(h *held) {
			h.change(func(s *v1alpha1.Sandbox) { s.Spec.Release.Token = "another" })
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				h := newHeld(t)
				tc.then(h)
				if err := h.Await(t.Context(), "s", "c"); !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
					t.Errorf("%v, want %v", err, tc.want)
				}
				if h.stillHeld() != tc.held {
					t.Errorf("held %v", h.stillHeld())
				}
			})
		})
	}
}

// A pause by another gateway calls the release off: no request goes by the route of before.
func TestHeldRequestOfASandboxThatIsPaused(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHeld(t)
		route := &routecache.Route{SandboxID: "s", ClaimID: "c", PodUID: "uid", Addr: netip.MustParseAddr("10.0.0.1"), PodRV: 1, Use: h.usage.ClaimUse("s", "c")}
		if !h.cache.Put(h.cache.Begin("s"), route) {
			t.Fatal("no route to begin with")
		}
		h.change(func(s *v1alpha1.Sandbox) { s.Spec.Release, s.Spec.Paused = nil, true })
		if err := h.Await(t.Context(), "s", "c"); err != nil || h.cache.Get("s") != nil || h.stillHeld() {
			t.Errorf("%v, the route %v, held %v", err, h.cache.Get("s"), h.stillHeld())
		}
	})
}

// The watch tells first, of either outcome; nothing is written then.
func TestWatchEndsAHold(t *testing.T) {
	for name, tell := range map[string]func(h *held){
		"called off": func(h *held) { h.usage.Lift("s", "c", "t") },
		"over":       func(h *held) { h.usage.ClaimEnded("s", "c") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				h := newHeld(t)
				time.AfterFunc(time.Second, func() { tell(h) })
				start := time.Now()
				if err := h.Await(t.Context(), "s", "c"); err != nil || time.Since(start) != time.Second || h.patches.Load() != 0 {
					t.Errorf("%v after %v, %d patches", err, time.Since(start), h.patches.Load())
				}
			})
		})
	}
}

// While the API server is away the outcome is unknown: the request waits for its deadline,
// and is not answered by the sandbox. Once it is back, it is settled.
func TestHeldWhileTheAPIServerIsAway(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHeld(t)
		h.goAway(errors.New("connection refused"))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := h.Await(ctx, "s", "c"); !errors.Is(err, context.DeadlineExceeded) || !h.stillHeld() {
			t.Errorf("%v, held %v", err, h.stillHeld())
		}
		time.AfterFunc(10*time.Second, func() { h.away.Store(nil) })
		start := time.Now()
		if err := h.Await(t.Context(), "s", "c"); err != nil || time.Since(start) > 12*time.Second || h.stillHeld() {
			t.Errorf("%v after %v, held %v", err, time.Since(start), h.stillHeld())
		}
	})
}

// A claim that the sandbox no longer has is held until the watch shows that.
func TestHeldAndBoundAnew(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHeld(t)
		h.change(func(s *v1alpha1.Sandbox) { s.Spec.Binding.ClaimID, s.Spec.Release = "c2", nil })
		time.AfterFunc(10*time.Second, func() { h.usage.ClaimEnded("s", "c") })
		start := time.Now()
		if err := h.Await(t.Context(), "s", "c"); err != nil || time.Since(start) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
