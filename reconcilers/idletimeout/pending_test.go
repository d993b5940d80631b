package idletimeout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/bubble"
)

// startingAt is a sandbox that starts in a pod which says that it was claimed
// then.
func startingAt(id string, startup time.Duration, claimedAt string) (*v1alpha1.Sandbox, *corev1.Pod) {
	s := running(id, 0)
	s.Status.Phase = v1alpha1.SandboxStarting
	s.Spec.Timeouts.Startup = &metav1.Duration{Duration: startup}
	s.Spec.Binding.PodName, s.Spec.Binding.PodUID = "pod-"+id, "uid-"+id
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "pod-" + id, UID: types.UID("uid-" + id)}}
	pod.Labels = map[string]string{v1alpha1.LabelSandboxID: id, v1alpha1.LabelPhase: string(v1alpha1.PodStarting)}
	pod.Annotations = map[string]string{v1alpha1.AnnotationClaim: "c-" + id, v1alpha1.AnnotationClaimedAt: claimedAt}
	return s, pod
}

// A startup timeout comes to the second, wherever between two checks the claim
// was made, and whatever the claiming gateway's clock says.
func TestStartupTimeoutIsExact(t *testing.T) {
	const startup = 5 * time.Second
	for _, skew := range []time.Duration{0, time.Hour, -time.Hour} {
		for _, at := range []time.Duration{0, 700 * time.Millisecond, 1900 * time.Millisecond, 9 * time.Second} {
			t.Run(fmt.Sprintf("claimed at %v by a clock %v off", at, skew), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					r, _, c := setup(t, &gateways{at: nobody})
					r.Clock, r.interval = clock.RealClock{}, 2*time.Second
					ctx, stop := context.WithCancel(t.Context())
					done := make(chan struct{})
					go func() { defer close(done); _ = r.Start(ctx) }()
					defer func() { stop(); <-done }()
					time.Sleep(at)
					s, pod := startingAt("s", startup, time.Now().Add(skew).Format(time.RFC3339Nano))
					for _, o := range []client.Object{pod, s} {
						if err := c.Create(ctx, o); err != nil {
							t.Fatal(err)
						}
					}
					exact := startup
					if skew > 0 {
						exact += r.interval // how long it was missed is not known
					}
					time.Sleep(startup - r.interval - time.Second)
					if got := ended(t, c, "s"); got != "" {
						t.Fatalf("end %q more than a check before its time", got)
					}
					if skew == 0 {
						time.Sleep(r.interval)
						if got := ended(t, c, "s"); got != "" {
							t.Fatalf("end %q a second before its time", got)
						}
						time.Sleep(2 * time.Second)
					} else {
						time.Sleep(exact - startup + r.interval + 2*time.Second)
					}
					if got := ended(t, c, "s"); got != v1alpha1.EndStartupTimeout {
						t.Errorf("end %q a second after its time", got)
					}
				})
			})
		}
	}
}

// A sandbox that runs in time, or whose claim is replaced, is left alone; the new
// claim has its own time. Its end says what the pod waited for.
func TestStartupCountsForEachClaim(t *testing.T) {
	s, pod := startingAt("s", 5*time.Second, "")
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such manifest"},
	}}}
	r, clock, c := setup(t, &gateways{at: nobody}, s, pod)
	r.check(t.Context())
	clock.Step(4 * time.Second)
	pod.Annotations[v1alpha1.AnnotationClaim] = "another"
	now := read(t, c, "s")
	now.Spec.Binding.ClaimID = "another"
	for _, o := range []client.Object{pod, now} {
		if err := c.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	r.check(t.Context())
	clock.Step(4 * time.Second)
	r.check(t.Context())
	if got := ended(t, c, "s"); got != "" || len(r.claims.starting) != 1 {
		t.Fatalf("end %q, remembers %v", got, r.claims.starting)
	}
	clock.Step(time.Second)
	r.check(t.Context())
	if got := ended(t, c, "s"); got != v1alpha1.EndStartupTimeout {
		t.Errorf("end %q", got)
	}
	if said := read(t, c, "s").Spec.End.Message; !strings.Contains(said, "no such manifest") {
		t.Errorf("the end does not say what the pod waited for: %s", said)
	}
	r.check(t.Context())
	if len(r.claims.starting) != 0 || !r.due.IsZero() {
		t.Errorf("remembers %v, due %v", r.claims.starting, r.due)
	}
}

// A pod that runs is not ended for what an old cache says of it, nor one that
// cannot be read.
func TestLateStartIsConfirmed(t *testing.T) {
	s, pod := startingAt("s", 5*time.Second, "")
	r, clock, c := setup(t, &gateways{at: nobody}, s, pod)
	live := pod.DeepCopy()
	live.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodRunning)
	var away error
	r.APIReader = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			live.DeepCopyInto(o.(*corev1.Pod))
			return away
		},
	})
	r.check(t.Context())
	clock.Step(time.Minute)
	r.check(t.Context())
	if got := ended(t, c, "s"); got != "" {
		t.Fatalf("end %q of a sandbox that runs", got)
	}
	live.Labels[v1alpha1.LabelPhase], away = string(v1alpha1.PodStarting), errors.New("the API server is away")
	r.check(t.Context())
	if got := ended(t, c, "s"); got != "" {
		t.Fatalf("end %q of a sandbox whose pod could not be read", got)
	}
	away = nil
	r.check(t.Context())
	if got := ended(t, c, "s"); got != v1alpha1.EndStartupTimeout {
		t.Errorf("end %q", got)
	}
}
