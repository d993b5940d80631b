package idletimeout

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
)

func read(t *testing.T, c client.Client, id string) *v1alpha1.Sandbox {
	t.Helper()
	s := &v1alpha1.Sandbox{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: id}, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// idleNow is a reconciler to whose next check the sandboxes are idle.
func idleNow(t *testing.T, g *gateways, ids ...string) (*IdleTimeoutReconciler, *clocktesting.FakeClock, client.WithWatch) {
	t.Helper()
	g.at = nobody
	var objects []client.Object
	for _, id := range ids {
		objects = append(objects, running(id, 5*time.Second))
	}
	r, clock, c := setup(t, g, objects...)
	r.check(t.Context())
	clock.Step(time.Minute)
	return r, clock, c.(client.WithWatch)
}

// The token is on the Sandbox before a gateway is asked, the end is written
// after all were, and only for sandboxes that are not in use.
func TestTwoSteps(t *testing.T) {
	g := &gateways{}
	r, _, c := idleNow(t, g, "unused", "used")
	g.prepare = func(releases []controlplane.Release) (map[string]bool, error) {
		for _, one := range releases {
			s := read(t, c, one.SandboxID)
			if s.Spec.End != nil || s.Spec.Release == nil || s.Spec.Release.Token != one.Token || s.Spec.Release.ClaimID != one.ClaimID {
				t.Errorf("asked about %+v when its spec was %+v", one, s.Spec)
			}
			if one.Idle != 5*time.Second || one.ClaimID != "c-"+one.SandboxID {
				t.Errorf("asked about %+v", one)
			}
		}
		return map[string]bool{"used": true}, nil
	}
	r.check(t.Context())
	if len(g.prepared) != 1 || len(g.prepared[0]) != 2 || g.prepared[0][0].Token == g.prepared[0][1].Token {
		t.Errorf("asked %+v", g.prepared)
	}
	if got := ended(t, c, "unused"); got != v1alpha1.EndIdleTimeout {
		t.Errorf("end %q of the one that nobody uses", got)
	}
	if s := read(t, c, "used"); s.Spec.End != nil || s.Spec.Release != nil {
		t.Errorf("the one in use: %+v", s.Spec)
	}
}

// A gateway that does not answer calls every release off, not only its own.
func TestPrepareFails(t *testing.T) {
	g := &gateways{prepare: func([]controlplane.Release) (map[string]bool, error) { return nil, errors.New("silent") }}
	r, _, c := idleNow(t, g, "a", "b")
	r.check(t.Context())
	for _, id := range []string{"a", "b"} {
		if s := read(t, c, id); s.Spec.End != nil || s.Spec.Release != nil {
			t.Errorf("%s: %+v", id, s.Spec)
		}
	}
}

// What the gateway takes with it that stops between the poll and the prepare
// may have been use.
func TestGatewayStopsBetweenTheSteps(t *testing.T) {
	g := &gateways{}
	r, clock, c := idleNow(t, g, "s")
	g.prepare = func([]controlplane.Release) (map[string]bool, error) {
		g.floor, g.prepare = clock.Now(), nil
		return nil, nil
	}
	r.check(t.Context())
	if s := read(t, c, "s"); s.Spec.End != nil || s.Spec.Release != nil {
		t.Errorf("%+v", s.Spec)
	}
	clock.Step(5 * time.Second)
	r.check(t.Context())
	if got := ended(t, c, "s"); got != v1alpha1.EndIdleTimeout {
		t.Errorf("end %q a timeout later", got)
	}
}

// Whatever happens to the sandbox after the gateways have answered, an end that
// was prepared for something else is not written.
func TestCommitIsRefused(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.Sandbox){
		"a gateway called it off":         func(s *v1alpha1.Sandbox) { s.Spec.Release = nil },
		"another controller began anew":   func(s *v1alpha1.Sandbox) { s.Spec.Release.Token = "another" },
		"the sandbox got another binding": func(s *v1alpha1.Sandbox) { s.Spec.Binding.ClaimID = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			g := &gateways{}
			r, _, c := idleNow(t, g, "s")
			g.prepare = func([]controlplane.Release) (map[string]bool, error) {
				s := read(t, c, "s")
				change(s)
				if err := c.Update(t.Context(), s); err != nil {
					t.Error(err)
				}
				return nil, nil
			}
			r.check(t.Context())
			if got := ended(t, c, "s"); got != "" {
				t.Errorf("end %q", got)
			}
		})
	}
}

// A controller that dies between any two steps leaves a token. Its successor
// takes it away at its first look and releases no sooner than a timeout later;
// the one that died cannot commit any more, should it wake up.
func TestControllerDiesBetweenTheSteps(t *testing.T) {
	for _, asked := range []bool{false, true} {
		t.Run(fmt.Sprintf("asked=%v", asked), func(t *testing.T) {
			g := &gateways{}
			old, _, c := idleNow(t, g, "s")
			gone, die := context.WithCancel(t.Context())
			stopped := &gateways{at: nobody, prepare: func([]controlplane.Release) (map[string]bool, error) {
				if asked {
					return nil, nil
				}
				return nil, errors.New("it died first")
			}}
			old.source = stopped
			var late []func() error // what the dead one still wants to write
			old.client = interceptor.NewClient(c, interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
					if len(stopped.prepared) == 0 {
						return c.Patch(ctx, o, p, opts...)
					}
					die()
					late = append(late, func() error { return c.Patch(t.Context(), o, p, opts...) })
					return gone.Err()
				},
			})
			old.check(gone)
			if s := read(t, c, "s"); s.Spec.Release == nil || s.Spec.End != nil || len(late) == 0 {
				t.Fatalf("the dead one left %+v and has %d writes under way", s.Spec, len(late))
			}
			next, clock, _ := setup(t, g)
			next.client, next.feed = c, &listed{client: c}
			next.check(t.Context())
			if s := read(t, c, "s"); s.Spec.Release != nil || s.Spec.End != nil {
				t.Errorf("the successor left %+v", s.Spec)
			}
			for _, write := range late {
				if err := write(); err == nil {
					t.Error("the dead one's write was applied")
				}
			}
			if got := ended(t, c, "s"); got != "" {
				t.Fatalf("end %q", got)
			}
			clock.Step(5 * time.Second)
			next.check(t.Context())
			if got := ended(t, c, "s"); got != v1alpha1.EndIdleTimeout {
				t.Errorf("end %q a timeout after the successor's first look", got)
			}
		})
	}
}

// A write whose answer is lost is settled by the next check, applied or not, at
// each of the three writes. Nothing that is in use is ended meanwhile, and in the
// end the sandbox is either as it was or ended.
func TestLostAnswersOfTheSteps(t *testing.T) {
	for write := 1; write <= 2; write++ {
		for _, applied := range []bool{false, true} {
			for _, used := range []bool{false, true} {
				t.Run(fmt.Sprintf("write=%d applied=%v used=%v", write, applied, used), func(t *testing.T) {
					g := &gateways{prepare: func([]controlplane.Release) (map[string]bool, error) {
						return map[string]bool{"s": used}, nil
					}}
					r, _, c := idleNow(t, g, "s")
					n := 0
					r.client = interceptor.NewClient(c, interceptor.Funcs{
						Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
							if n++; n != write {
								return c.Patch(ctx, o, p, opts...)
							}
							if applied {
								_ = c.Patch(ctx, o, p, opts...)
							}
							return context.DeadlineExceeded
						},
					})
					r.check(t.Context())
					if n < write {
						t.Fatalf("%d writes", n)
					}
					if got := ended(t, c, "s"); got != "" && (used || write < 2 || !applied) {
						t.Fatalf("end %q", got)
					}
					r.check(t.Context())
					s := read(t, c, "s")
					if ended := s.Spec.End != nil; ended == used || !ended && s.Spec.Release != nil {
						t.Errorf("left as %+v", s.Spec)
					}
				})
			}
		}
	}
}

// The cache may show a token for a while after it is gone, which is no leftover of
// another leader. One that stays is.
func TestLaggingCacheIsNoLeftover(t *testing.T) {
	g := &gateways{prepare: func([]controlplane.Release) (map[string]bool, error) { return map[string]bool{"s": true}, nil }}
	r, _, c := idleNow(t, g, "s")
	r.check(t.Context())
	stale := read(t, c, "s")
	stale.Spec.Release = &v1alpha1.Release{Token: g.prepared[0][0].Token, ClaimID: "c-s"}
	writes := 0
	r.client = interceptor.NewClient(c, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			writes++
			return nil
		},
	})
	for range 3 {
		r.claims.releasing = map[string]*v1alpha1.Sandbox{"s": stale}
		if err := r.callOffLeftovers(t.Context()); err != nil || writes != 0 {
			t.Fatalf("%d writes, %v", writes, err)
		}
	}
	other := stale.DeepCopy()
	other.Spec.Release.Token = "another's"
	r.claims.releasing = map[string]*v1alpha1.Sandbox{"s": other}
	if err := r.callOffLeftovers(t.Context()); err != nil || writes != 1 {
		t.Errorf("%d writes, %v", writes, err)
	}
	r.claims.releasing = nil
	if err := r.callOffLeftovers(t.Context()); err != nil || len(r.dealt) != 0 {
		t.Errorf("remembers %v for ever", r.dealt)
	}
}

// Many are released in batches, each of which is asked about once.
func TestBatches(t *testing.T) {
	g := &gateways{}
	var ids []string
	for i := range 2*releaseBatch + 1 {
		ids = append(ids, fmt.Sprint("s", i))
	}
	r, _, c := idleNow(t, g, ids...)
	r.check(t.Context())
	if len(g.prepared) != 3 || len(g.prepared[2]) != 1 {
		t.Errorf("%d batches", len(g.prepared))
	}
	for _, id := range ids {
		if got := ended(t, c, id); got != v1alpha1.EndIdleTimeout {
			t.Fatalf("%s: end %q", id, got)
		}
	}
}
