package reconcilers_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/reconcilers/sandboxenv/autoscaler"
	"github.com/sandlane/sandlane/test/kubetest"
)

// sizing is what the test says that gateways know.
type sizing struct {
	mu      sync.Mutex
	created time.Time
	known   bool
	waiting int
}

func (d *sizing) Of(types.NamespacedName) controlplane.Demand {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := controlplane.Demand{Waiting: map[uint64]time.Time{}, Created: d.created, Known: d.known}
	for i := range d.waiting {
		all.Waiting[uint64(i)] = time.Now() //nolint:gosec // not negative
	}
	return all
}

// Waiting is what pools are told of the same.
func (d *sizing) Waiting(pool types.NamespacedName) (map[uint64]time.Time, bool) {
	all := d.Of(pool)
	return all.Waiting, all.Known
}

func (*sizing) Soon() {}

func (d *sizing) say(created time.Time, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.created, d.known = created, known
}

// sizedBy has pools and the autoscaler told the same.
func sizedBy(d *sizing) func(*world) {
	return func(w *world) { w.options.Sizing, w.options.Demand = d, d }
}

func seconds(n int) *metav1.Duration {
	return &metav1.Duration{Duration: time.Duration(n) * time.Second}
}

// autoscaled switches autoscaling on, in short times.
func autoscaled(e *v1alpha1.SandboxEnv) {
	e.Spec.Autoscaling = &v1alpha1.EnvAutoscaling{
		Enabled: true, Groups: []v1alpha1.ScalingGroup{{Name: "default"}},
		ScaleUp:   v1alpha1.ScaleUp{Cooldown: seconds(1), IdleThreshold: seconds(0), QuietWindow: seconds(3600), SaturationCooldown: seconds(2)},
		ScaleDown: v1alpha1.ScaleDown{IdleTimeout: seconds(1), Stabilization: seconds(1)},
	}
}

func replicasOf(e *v1alpha1.SandboxEnv, member int) int32 {
	return ptr.Deref(e.Spec.Clusters[0].Members[member].Spec.Replicas, -1)
}

// awaitReplicas waits until the env asks for `want` replicas of its first member, and
// its pool for the same.
func (w *world) awaitReplicas(env string, want int32) {
	w.t.Helper()
	e := w.getEnv(env)
	kubetest.Eventually(w.t, fmt.Sprintf("%d replicas", want), func() error {
		if got := replicasOf(w.getEnv(env), 0); got != want {
			return fmt.Errorf("the env asks for %d", got)
		}
		return nil
	})
	w.awaitPool(e.Spec.Clusters[0].Members[0].Name, fmt.Sprintf("of %d", want), func(p *v1alpha1.SandboxPool) bool { return p.Spec.Replicas == want })
}

// TestAutoscalerFollowsDemand: the buffer grows with what is claimed, is given up when
// no request has come for long, and stays while a gateway does not answer.
func TestAutoscalerFollowsDemand(t *testing.T) {
	d := &sizing{known: true, created: time.Now()}
	w := newWorld(t, sizedBy(d))
	w.env("e", member("a", 1))
	w.changeEnv("e", autoscaled)
	for range 8 {
		kubetest.Eventually(t, "an idle pod", func() error {
			if len(w.pods("a", v1alpha1.PodIdle)) == 0 {
				return errors.New("none")
			}
			return nil
		})
		w.running("a")
	}
	w.awaitReplicas("e", 2)
	w.await("a", v1alpha1.PodIdle, 2)
	kubetest.Eventually(t, "bookkeeping", func() error {
		a := w.awaitPool("a", "there", func(*v1alpha1.SandboxPool) bool { return true }).Status.AutoScaling
		if a == nil || a.LastScaleUpTime == nil || a.LastScaleUpAttemptResult != v1alpha1.ScaleUpEnough {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})

	// A person who scales the pool finds the env's replicas back.
	pool := w.awaitPool("a", "there", func(*v1alpha1.SandboxPool) bool { return true })
	scale := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":7}}`))
	if err := w.c.SubResource("scale").Patch(t.Context(), pool, scale); err != nil {
		t.Fatal(err)
	}
	w.awaitPool("a", "stamped back", func(p *v1alpha1.SandboxPool) bool { return p.Spec.Replicas == 2 && p.Generation > pool.Generation })
	kubetest.Eventually(t, "Events", func() error {
		if told := w.eventsOfEnv("e"); told["ScaledUp"] == 0 || told["PoolUpdated"] == 0 {
			return fmt.Errorf("%v", told)
		}
		return nil
	})
	w.await("a", v1alpha1.PodIdle, 2)

	// No create has come for long, but a gateway may know of one.
	d.say(time.Now().Add(-2*time.Hour), false)
	never(t, 3*time.Second, "replicas were given up by unknown demand", func() bool { return replicasOf(w.getEnv("e"), 0) != 2 })
	d.say(time.Now().Add(-2*time.Hour), true)
	w.awaitReplicas("e", 0)
	w.await("a", v1alpha1.PodIdle, 0)
	if n := len(w.pods("a", v1alpha1.PodRunning)); n != 8 {
		t.Errorf("%d running pods, want 8", n)
	}
	kubetest.Eventually(t, "Events", func() error {
		if told := w.eventsOfEnv("e"); told["ScaleDownStarted"] == 0 || told["ScaleDownCompleted"] == 0 {
			return fmt.Errorf("%v", told)
		}
		return nil
	})
}

// TestAutoscalingOff: the env is not written, and since when no pod is idle is noted all
// the same.
func TestAutoscalingOff(t *testing.T) {
	w := newWorld(t, sizedBy(&sizing{known: true, created: time.Now()}))
	w.env("e", member("a", 1))
	w.await("a", v1alpha1.PodIdle, 1)
	w.changeEnv("e", func(e *v1alpha1.SandboxEnv) { e.Spec.Clusters[0].Members[0].Spec.Replicas = ptr.To[int32](0) })
	kubetest.Eventually(t, "idle zero noted", func() error {
		if a := w.awaitPool("a", "there", func(*v1alpha1.SandboxPool) bool { return true }).Status.AutoScaling; a == nil || a.IdleZeroSince == nil {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	if e := w.getEnv("e"); e.Generation != 2 || replicasOf(e, 0) != 0 {
		t.Errorf("generation %d, %d replicas; want what the test wrote", e.Generation, replicasOf(e, 0))
	}
}

// TestApplyLeavesReplicasOut: kubectl apply takes away what the autoscaler wrote, and
// the pool keeps what it has.
func TestApplyLeavesReplicasOut(t *testing.T) {
	w := newWorld(t)
	w.env("e", member("a", 3))
	w.await("a", v1alpha1.PodIdle, 3)
	w.changeEnv("e", func(e *v1alpha1.SandboxEnv) {
		e.Spec.Clusters[0].Members[0].Spec = v1alpha1.EnvMemberSpec{MaxPods: 9}
	})
	if p := w.awaitPool("a", "changed", func(p *v1alpha1.SandboxPool) bool { return p.Spec.MaxPods == 9 }); p.Spec.Replicas != 3 {
		t.Errorf("%d replicas", p.Spec.Replicas)
	}
}

// TestMemberThatCannotGrow: what is refused is shown on the env, and not asked for again
// and again.
func TestMemberThatCannotGrow(t *testing.T) {
	d := &sizing{known: true, created: time.Now(), waiting: 20}
	w := newWorld(t, sizedBy(d))
	w.env("e", v1alpha1.EnvMember{Name: "a", Spec: v1alpha1.EnvMemberSpec{Replicas: ptr.To[int32](1), MaxPods: 1}})
	w.await("a", v1alpha1.PodIdle, 1)
	w.changeEnv("e", func(e *v1alpha1.SandboxEnv) {
		autoscaled(e)
		e.Spec.Autoscaling.ScaleUp.SaturationCooldown = seconds(600)
	})
	// The first step may come before the pool has said that it is full.
	m := w.awaitMember("e", "local", "a", v1alpha1.MemberSaturated)
	if m.SaturatedUntil == nil || m.Message == "" {
		t.Errorf("member %+v", m)
	}
	is := replicasOf(w.getEnv("e"), 0)
	never(t, 3*time.Second, "a saturated member grew", func() bool { return replicasOf(w.getEnv("e"), 0) != is })
	kubetest.Eventually(t, "an Event", func() error {
		if told := w.eventsOfEnv("e"); told["Saturated"] != 1 {
			return fmt.Errorf("%v", told)
		}
		return nil
	})
}

// TestReplicasChangedMeanwhile: a step that was decided on other replicas than the env
// has is not made, and leaves no cooldown. One that cannot be written is noted as failed.
func TestReplicasChangedMeanwhile(t *testing.T) {
	d := &sizing{known: true, created: time.Now(), waiting: 20}
	w := newWorld(t, func(w *world) { w.options.Demand = d })
	w.env("e", member("a", 1))
	w.awaitMember("e", "local", "a", v1alpha1.MemberActive)
	kubetest.Eventually(t, "the pool to say what waits", func() error {
		if p := w.awaitPool("a", "there", func(*v1alpha1.SandboxPool) bool { return true }); p.Status.WaitingClaims != 20 {
			return fmt.Errorf("%d", p.Status.WaitingClaims)
		}
		return nil
	})
	w.stop()
	w.changeEnv("e", autoscaled)
	stale := w.getEnv("e")
	w.changeEnv("e", func(e *v1alpha1.SandboxEnv) { e.Spec.Clusters[0].Members[0].Spec.Replicas = ptr.To[int32](7) })
	r := &autoscaler.Reconciler{LocalClusterID: "local", Demand: d}
	var away error
	r.Client = interceptor.NewClient(w.c, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if _, ok := o.(*v1alpha1.SandboxEnv); ok && away != nil {
				return away
			}
			return c.Patch(ctx, o, p, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if e, ok := o.(*v1alpha1.SandboxEnv); ok {
				stale.DeepCopyInto(e)
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	look := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(stale)}
	got, err := r.Reconcile(t.Context(), look)
	if err != nil || got.RequeueAfter == 0 || got.RequeueAfter > 2*time.Second {
		t.Errorf("looked at again after %v, error %v", got.RequeueAfter, err)
	}
	a := w.awaitPool("a", "there", func(*v1alpha1.SandboxPool) bool { return true }).Status.AutoScaling
	if replicasOf(w.getEnv("e"), 0) != 7 || a != nil && (a.LastScaleUpAttemptResult != "" || a.LastScaleUpTime != nil) {
		t.Errorf("the env asks for %d, bookkeeping %+v", replicasOf(w.getEnv("e"), 0), a)
	}
	away = errors.New("the API server is away")
	if _, err := r.Reconcile(t.Context(), look); !errors.Is(err, away) {
		t.Errorf("while the API server is away: %v", err)
	}
	a = w.awaitPool("a", "there", func(*v1alpha1.SandboxPool) bool { return true }).Status.AutoScaling
	if a == nil || a.LastScaleUpAttemptResult != v1alpha1.ScaleUpFailed || a.LastScaleUpTime != nil {
		t.Errorf("while the API server is away: %+v", a)
	}
	away = nil
	// Nor is one of an env made whose autoscaling was switched off.
	w.changeEnv("e", func(e *v1alpha1.SandboxEnv) {
		e.Spec.Clusters[0].Members[0].Spec.Replicas = ptr.To[int32](1)
		e.Spec.Autoscaling.Enabled = false
	})
	stale.Spec.Autoscaling.ScaleUp.SaturationCooldown = &metav1.Duration{}
	if _, err := r.Reconcile(t.Context(), look); err != nil || replicasOf(w.getEnv("e"), 0) != 1 {
		t.Errorf("the env asks for %d, error %v", replicasOf(w.getEnv("e"), 0), err)
	}
}

// TestControllerDiesBetweenTheWrites: the bookkeeping is there and the step is not. The
// next controller makes it once, after a cooldown.
func TestControllerDiesBetweenTheWrites(t *testing.T) {
	d := &sizing{known: true, created: time.Now(), waiting: 20}
	fails := errors.New("killed")
	w := newWorld(t, func(w *world) {
		sizedBy(d)(w)
		w.faults = &interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if _, ok := o.(*v1alpha1.SandboxEnv); ok {
				<-ctx.Done() // the process ends here
				return fails
			}
			return c.Patch(ctx, o, p, opts...)
		}}
	})
	w.env("e", member("a", 1))
	w.awaitMember("e", "local", "a", v1alpha1.MemberActive)
	w.changeEnv("e", autoscaled)
	kubetest.Eventually(t, "a step noted", func() error {
		if a := w.awaitPool("a", "there", func(*v1alpha1.SandboxPool) bool { return true }).Status.AutoScaling; a == nil || a.LastScaleUpTime == nil {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	w.stop()
	if got := replicasOf(w.getEnv("e"), 0); got != 1 {
		t.Fatalf("%d replicas, and no write went through", got)
	}
	w.faults = nil
	w.start()
	w.awaitReplicas("e", 5) // a quarter of the 20 that wait: 1, 2, 4, 5
	never(t, 2*time.Second, "ordered twice", func() bool { return replicasOf(w.getEnv("e"), 0) != 5 })
}
