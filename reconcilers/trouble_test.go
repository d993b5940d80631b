package reconcilers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/kubetest"
)

// crash lets a number of the controller's writes through once it is armed; every
// later one fails, as if the process had died.
type crash struct {
	armed atomic.Bool
	left  atomic.Int32
}

func (c *crash) write() error {
	if c.armed.Load() && c.left.Add(-1) < 0 {
		return errors.New("the controller has died")
	}
	return nil
}

func (c *crash) faults() *interceptor.Funcs {
	return &interceptor.Funcs{
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := c.write(); err != nil {
				return err
			}
			return w.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := c.write(); err != nil {
				return err
			}
			return w.Delete(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := c.write(); err != nil {
				return err
			}
			return w.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, w client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if _, pool := o.(*v1alpha1.SandboxPool); !pool { // a pool's status is no step of a release
				if err := c.write(); err != nil {
					return err
				}
			}
			return w.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}
}

// TestControllerDiesBetweenTheStepsOfARelease lets the controller die after each
// of its writes in turn, and another one that knows only the API take over.
func TestControllerDiesBetweenTheStepsOfARelease(t *testing.T) {
	for most := range int32(8) {
		t.Run(fmt.Sprintf("after %d writes", most), func(t *testing.T) {
			c := &crash{}
			w := newWorld(t, func(w *world) { w.faults = c.faults() })
			w.pool("p", 1, 0)
			w.await("p", v1alpha1.PodIdle, 1)
			s, pod := w.running("p")
			w.await("p", v1alpha1.PodIdle, 1)
			c.left.Store(most)
			c.armed.Store(true)
			if err := writes.EndSandbox(t.Context(), w.c, s.Name, v1alpha1.EndReleased, ""); err != nil {
				t.Fatal(err)
			}
			if most < 6 { // a whole release has six: record, stop, ended, delete, finalizer, and one more pod status
				kubetest.Eventually(t, "the death", func() error {
					if left := c.left.Load(); left >= 0 && w.pod(pod) != nil {
						return fmt.Errorf("%d writes left", left)
					}
					return nil
				})
			}
			w.stop()
			w.faults = nil
			w.start()
			s = w.awaitSandbox(s, v1alpha1.SandboxEnded)
			w.awaitGone(pod)
			if s.Status.Address != pod.Status.PodIP || s.Status.FencedAt == nil || s.Status.Stop == nil {
				t.Errorf("status %+v", s.Status)
			}
			if len(w.gateways.of(pod.Status.PodIP)) == 0 {
				t.Error("the address was not fenced")
			}
			w.await("p", v1alpha1.PodIdle, 1)
		})
	}
}

func TestPodFailures(t *testing.T) {
	for _, tt := range []struct {
		name    string
		damage  func(*corev1.PodStatus)
		message string
	}{
		{"crash", func(s *corev1.PodStatus) {
			s.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}}
		}, "exit code 3"},
		{"out of memory", func(s *corev1.PodStatus) {
			s.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}
		}, "too much memory"},
		{"eviction", func(s *corev1.PodStatus) {
			s.Phase, s.Reason, s.Message = corev1.PodFailed, "Evicted", "the node was low on memory"
		}, "Evicted: the node was low on memory"},
		{"other address", func(s *corev1.PodStatus) {
			s.PodIP = newAddress()
			s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
		}, "address changed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.pool("p", 1, 0)
			w.await("p", v1alpha1.PodIdle, 1)
			s, pod := w.running("p")
			unclaimed := w.await("p", v1alpha1.PodIdle, 1)[0]
			w.setStatus(pod, tt.damage)
			s = w.awaitSandbox(s, v1alpha1.SandboxEnded)
			if s.Spec.End.Reason != v1alpha1.EndFailed || !strings.Contains(s.Spec.End.Message, tt.message) {
				t.Errorf("end %+v, want a message with %q", s.Spec.End, tt.message)
			}
			if s.Status.Address != pod.Status.PodIP {
				t.Errorf("recorded %s, the claim had %s", s.Status.Address, pod.Status.PodIP)
			}
			w.awaitGone(pod)
			if tt.name != "crash" && tt.name != "out of memory" { // an idle pod's container may be started again
				w.setStatus(&unclaimed, tt.damage)
				w.awaitGone(&unclaimed)
			}
			w.await("p", v1alpha1.PodIdle, 1)
		})
	}
}

func TestPodThatNeverGetsReady(t *testing.T) {
	w := newWorld(t)
	var heal atomic.Bool
	w.node.use(func(*corev1.Pod) string {
		if heal.Load() {
			return newAddress()
		}
		return ""
	})
	var creates atomic.Int32
	pool := w.pool("p", 4, 0, func(p *v1alpha1.SandboxPool) { p.Spec.StartupTimeout = &metav1.Duration{Duration: time.Second} })
	seen := map[string]bool{}
	condition := func() *metav1.Condition {
		if err := w.c.Get(t.Context(), client.ObjectKeyFromObject(pool), pool); err != nil {
			t.Fatal(err)
		}
		return meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.PoolConditionDegraded)
	}
	kubetest.Eventually(t, "a degraded pool", func() error {
		if c := condition(); c == nil || c.Status != metav1.ConditionTrue || c.Reason != "StartupTimeout" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	never(t, 5*time.Second, "more than a handful of pods", func() bool {
		for _, p := range w.pods("p", "") {
			if !seen[p.Name] {
				seen[p.Name] = true
				creates.Add(1)
			}
		}
		return creates.Load() > 5
	})
	heal.Store(true)
	w.await("p", v1alpha1.PodIdle, 4)
	kubetest.Eventually(t, "a healthy pool", func() error {
		if c := condition(); c.Status != metav1.ConditionFalse {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

// TestCreationRefused: the API server's words are shown, and it is not asked
// again and again.
func TestCreationRefused(t *testing.T) {
	var refuse atomic.Bool
	var asked atomic.Int32
	refuse.Store(true)
	w := newWorld(t, func(w *world) {
		w.faults = &interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, ok := o.(*corev1.Pod); ok && refuse.Load() {
				asked.Add(1)
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("not on a Sunday"))
			}
			return c.Create(ctx, o, opts...)
		}}
	})
	pool := w.pool("p", 50, 0)
	kubetest.Eventually(t, "a degraded pool", func() error {
		if err := w.c.Get(t.Context(), client.ObjectKeyFromObject(pool), pool); err != nil {
			return err
		}
		c := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.PoolConditionDegraded)
		if c == nil || c.Reason != "Forbidden" || !strings.Contains(c.Message, "not on a Sunday") {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	never(t, 2*time.Second, "the API server is asked again and again", func() bool { return asked.Load() > 3 })
	refuse.Store(false)
	w.await("p", v1alpha1.PodIdle, 50)
}

// TestPoolDeleted has no garbage collection and no gateway that answers.
func TestPoolDeleted(t *testing.T) {
	w := newWorld(t)
	pool := w.pool("p", 2, 0)
	w.await("p", v1alpha1.PodIdle, 2)
	s, _ := w.running("p")
	w.gateways.setAway(true)
	if err := w.c.Delete(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "no pod left", func() error {
		if left := w.pods("p", ""); len(left) > 0 {
			return fmt.Errorf("%d pods, the first %s", len(left), phaseOf(&left[0]))
		}
		return nil
	})
	s = w.awaitSandbox(s, v1alpha1.SandboxEnding)
	if s.Spec.End.Reason != v1alpha1.EndDeleted || s.Status.Address == "" {
		t.Errorf("end %+v, status %+v", s.Spec.End, s.Status)
	}
}

func TestScale(t *testing.T) {
	w := newWorld(t)
	pool := w.pool("p", 3, 0)
	w.await("p", v1alpha1.PodIdle, 3)
	s, pod := w.running("p")
	scaleTo := func(replicas, maxPods int32) {
		t.Helper()
		before := pool.DeepCopy()
		pool.Spec.Replicas, pool.Spec.MaxPods = replicas, maxPods
		if err := w.c.Patch(t.Context(), pool, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	scaleTo(0, 0)
	w.await("p", v1alpha1.PodIdle, 0)
	scaleTo(10, 4)
	w.await("p", v1alpha1.PodIdle, 3)
	never(t, 500*time.Millisecond, "more than maxPods", func() bool { return len(w.pods("p", "")) > 4 })
	scaleTo(10, 1)
	w.await("p", v1alpha1.PodIdle, 0)
	if got := w.sandbox(s.Name); got.Spec.End != nil || phaseOf(w.pod(pod)) != v1alpha1.PodRunning {
		t.Errorf("scaling down touched a claimed pod: end %+v, pod %s", got.Spec.End, phaseOf(w.pod(pod)))
	}
	scaleTo(1, 1)
	if err := writes.EndSandbox(t.Context(), w.c, s.Name, v1alpha1.EndReleased, ""); err != nil {
		t.Fatal(err)
	}
	w.await("p", v1alpha1.PodIdle, 1)
}

func TestFirstRequestWithoutAPodIsForgotten(t *testing.T) {
	w := newWorld(t)
	w.pool("p", 0, 0, func(p *v1alpha1.SandboxPool) { p.Spec.StartupTimeout = &metav1.Duration{Duration: time.Second} })
	s := w.newSandbox("p", nil, func(s *v1alpha1.Sandbox) { s.Spec.FirstRequest = true })
	lazy := w.newSandbox("p", nil)
	w.awaitSandbox(s, "")
	if got := w.sandbox(lazy.Name); got == nil || got.Spec.End != nil || got.Status.Phase != v1alpha1.SandboxPending {
		t.Errorf("a lazily created sandbox: %+v", got)
	}
}

func TestBindingWithoutClaim(t *testing.T) {
	applied := make(chan string, 100)
	w := newWorld(t, func(w *world) {
		w.options.BindGrace = 300 * time.Millisecond
		w.options.ApplyClaim = func(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) error {
			applied <- s.Name
			return w.c.Patch(ctx, pod.DeepCopy(), claimPatch(s, v1alpha1.PodRunning).Build())
		}
	})
	w.pool("p", 1, 0)
	pod := w.await("p", v1alpha1.PodIdle, 1)[0]
	s := w.newSandbox("p", &pod)
	w.awaitSandbox(s, v1alpha1.SandboxRunning)
	if got := <-applied; got != s.Name {
		t.Errorf("applied the claim of %s", got)
	}
	// Another sandbox bound to the same pod: its claim can never land.
	other := w.newSandbox("p", &pod)
	kubetest.Eventually(t, "the binding removed", func() error {
		if got := w.sandbox(other.Name); got.Spec.Binding != nil || got.Spec.End != nil {
			return fmt.Errorf("%+v", got.Spec)
		}
		return nil
	})
	if got := w.sandbox(s.Name); got.Spec.End != nil {
		t.Errorf("the pod's owner was ended: %+v", got.Spec.End)
	}
}

// TestBoundAnewAfterAClaim: the first claim landed and was recorded, then its pod
// was stopped and the sandbox bound to another. It does not end for that, and the
// former address serves no claim before its fence, also for a controller that knows
// only the API, and after the record has the new address.
func TestBoundAnewAfterAClaim(t *testing.T) {
	w := newWorld(t, func(w *world) { w.options.SweepInterval = 300 * time.Millisecond })
	w.pool("p", 2, 3)
	w.await("p", v1alpha1.PodIdle, 2)
	s, former := w.running("p")
	w.await("p", v1alpha1.PodIdle, 2)
	w.stop()
	w.gateways.setAway(true)
	stop := writes.For(former.UID).Set(writes.Phase, v1alpha1.PodStopping)
	if err := w.c.Patch(t.Context(), former.DeepCopy(), stop.Build()); err != nil {
		t.Fatal(err)
	}
	next := w.pods("p", v1alpha1.PodIdle)[0]
	s.Spec.Binding = &v1alpha1.Binding{ClaimID: kubetest.Name("claim"), PodName: next.Name, PodUID: string(next.UID)}
	bind := writes.For(s.UID).Set("/spec/binding", s.Spec.Binding)
	if err := w.c.Patch(t.Context(), s.DeepCopy(), bind.Build()); err != nil {
		t.Fatal(err)
	}
	w.node.use(func(*corev1.Pod) string { return former.Status.PodIP })
	w.start()
	never(t, time.Second, "a sandbox that was bound anew has ended", func() bool { return w.sandbox(s.Name).Spec.End != nil })
	if err := w.c.Patch(t.Context(), next.DeepCopy(), claimPatch(s, v1alpha1.PodRunning).Build()); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "the new claim's address", func() error {
		if got := w.sandbox(s.Name).Status; got.Address != next.Status.PodIP || got.AddressClaim != s.Spec.Binding.ClaimID {
			return fmt.Errorf("%s of %s", got.Address, got.AddressClaim)
		}
		return nil
	})
	w.stop()
	w.start()
	served := func() bool {
		for _, p := range w.pods("p", v1alpha1.PodIdle) {
			if p.UID != former.UID && p.Annotations[v1alpha1.AnnotationAddress] == former.Status.PodIP {
				return true
			}
		}
		return false
	}
	never(t, 2*time.Second, "the former address serves again before its fence", func() bool { return served() || w.pod(former) == nil })
	w.gateways.setAway(false)
	kubetest.Eventually(t, "the former address in use again", func() error {
		if !served() {
			return errors.New("not yet")
		}
		return nil
	})
	if len(w.gateways.of(former.Status.PodIP)) == 0 || w.pod(former) != nil {
		t.Error("the former address serves again without a fence")
	}
	if got := w.sandbox(s.Name); got.Spec.End != nil || got.Status.Phase != v1alpha1.SandboxRunning {
		t.Errorf("end %+v, status %+v", got.Spec.End, got.Status)
	}
}

func TestSweep(t *testing.T) {
	w := newWorld(t, func(w *world) { w.options.SweepInterval = 300 * time.Millisecond })
	w.pool("p", 1, 0)
	pod := w.await("p", v1alpha1.PodIdle, 1)[0]
	nobody := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: kubetest.Name("nobody")}, Spec: v1alpha1.SandboxSpec{
		Binding: &v1alpha1.Binding{ClaimID: "lost", PodName: pod.Name, PodUID: string(pod.UID)},
	}}
	if err := w.c.Patch(t.Context(), pod.DeepCopy(), claimPatch(nobody, v1alpha1.PodRunning).Build()); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "the pod gone", func() error {
		if p := w.pod(&pod); p != nil {
			return fmt.Errorf("%s", phaseOf(p))
		}
		return nil
	})
	if len(w.gateways.of(pod.Status.PodIP)) == 0 {
		t.Error("the address was not fenced")
	}
}
