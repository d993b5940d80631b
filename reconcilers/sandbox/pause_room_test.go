package sandbox

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// dueForPause returns a sandbox whose end time, at which it is to be paused, has come, its pod,
// and its pool, which may have so many that are paused.
func dueForPause(most int32) (*v1alpha1.Sandbox, *corev1.Pod, *v1alpha1.SandboxPool) {
	s, pod := bound()
	at := metav1.NewTime(now.Add(-time.Second))
	s.UID, s.Generation, s.Finalizers = "s-uid", 1, []string{v1alpha1.FinalizerSandbox}
	s.Spec.Timeouts.EndAt, s.Spec.Timeouts.OnTimeout = &at, v1alpha1.TimeoutPause
	pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: v1alpha1.SandboxdPort}}}}
	had(s, "c")
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
	pool.Spec.Pause = &v1alpha1.PoolPause{MaxPaused: &most}
	return s, pod, pool
}

// At its end time a sandbox is paused only while its pool has fewer that are than it may.
func TestPoolWithoutRoomForPaused(t *testing.T) {
	for what, c := range map[string]struct {
		most   int32
		paused bool
	}{"room": {2, true}, "no room": {1, false}} {
		s, pod, pool := dueForPause(c.most)
		other, ended, elsewhere := s.DeepCopy(), s.DeepCopy(), s.DeepCopy()
		for i, o := range []*v1alpha1.Sandbox{other, ended, elsewhere} {
			o.Name, o.Spec.Paused, o.UID = fmt.Sprint("other", i), true, ""
		}
		ended.Spec.End, elsewhere.Spec.Pool = &v1alpha1.End{}, "elsewhere"
		g := newRig(t, s, pod, pool, other, ended, elsewhere)
		g.orders.pauseEnforcer = &stubPauseEnforcer{}
		g.look(t)
		if got := g.sandbox(t).Spec; got.Paused != c.paused || (got.End == nil) != c.paused {
			t.Errorf("%s: %+v", what, got)
		}
		g.orders.tries.Wait()
	}
}

// A pause at an end time that is not written, since a client has extended the sandbox meanwhile,
// gives its room back: another sandbox of the pool is paused at its end time, and not ended.
func TestPauseThatIsRefusedTakesNoRoom(t *testing.T) {
	s, pod, pool := dueForPause(1)
	extended := s.DeepCopy()
	extended.Name, extended.UID = "extended", "extended-uid"
	g := newRig(t, s, pod, pool, extended)
	g.orders.pauseEnforcer = &stubPauseEnforcer{}
	plain := g.Client
	g.Client = interceptor.NewClient(plain.(client.WithWatch), interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "Sandbox"}, "extended", nil) // a test of the patch fails
		},
	})
	if err := g.apply(t.Context(), extended, pod, decision{step: stepPause}); err != nil {
		t.Fatal(err)
	}
	g.Client = plain
	g.look(t)
	if got := g.sandbox(t).Spec; !got.Paused || got.End != nil {
		t.Errorf("the other sandbox: %+v", got)
	}
	g.orders.tries.Wait()
}
