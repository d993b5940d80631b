package sandboxpool

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// TestStartupCountsFromTheFirstSight: a claim has all of its startup timeout
// whatever the claiming gateway's clock says, and no more; so has a pod that warms,
// whatever the API server's clock says.
func TestStartupCountsFromTheFirstSight(t *testing.T) {
	for _, skew := range []time.Duration{0, time.Hour, -time.Hour} {
		for _, phase := range []v1alpha1.PodPhase{v1alpha1.PodStarting, v1alpha1.PodWarming} {
			t.Run(string(phase)+" since "+skew.String(), func(t *testing.T) {
				l := newLagging(t, 0)
				pool := l.pool()
				pool.Spec.Replicas, pool.Spec.StartupTimeout = 1, &metav1.Duration{Duration: startup}
				if err := l.real.Update(t.Context(), pool); err != nil {
					t.Fatal(err)
				}
				l.reconcile(1)
				pod := &l.catchUp()[0]
				pod.CreationTimestamp = metav1.NewTime(now.Add(skew))
				pod.Labels[v1alpha1.LabelPhase] = string(phase)
				if phase == v1alpha1.PodStarting {
					pod.Labels[v1alpha1.LabelSandboxID] = "s"
					pod.Annotations[v1alpha1.AnnotationClaim] = "c"
					pod.Annotations[v1alpha1.AnnotationClaimedAt] = now.Add(skew).Format(time.RFC3339Nano)
				}
				if err := l.real.Update(t.Context(), pod.DeepCopy()); err != nil {
					t.Fatal(err)
				}
				uid := pod.UID
				is := func() v1alpha1.PodPhase {
					t.Helper()
					l.reconcile(1)
					for _, p := range l.catchUp() {
						if p.UID == uid {
							return v1alpha1.PhaseOf(&p)
						}
					}
					return ""
				}
				l.catchUp()
				is() // the first sight
				l.clock.SetTime(now.Add(startup - time.Millisecond))
				if got := is(); got != phase {
					t.Errorf("it is %q before its time", got)
				}
				l.clock.SetTime(now.Add(startup))
				if got := is(); got != v1alpha1.PodFailed {
					t.Errorf("it is %q after its time", got)
				}
			})
		}
	}
}

func TestSights(t *testing.T) {
	var s firstSeen
	pod := func(uid string, phase v1alpha1.PodPhase, claim, recycled string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Labels: map[string]string{v1alpha1.LabelPhase: string(phase)},
			Annotations: map[string]string{v1alpha1.AnnotationClaim: claim, v1alpha1.AnnotationRecycled: recycled}}}
	}
	at := now
	look := func(what string, want time.Duration, pods ...corev1.Pod) {
		t.Helper()
		at = at.Add(time.Second)
		var seen []openPod
		for i := range pods {
			seen = append(seen, openPod{pod: &pods[i]})
		}
		if got := s.update(key, seen, at)["u"]; got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
		s.update(types.NamespacedName{Name: "another"}, nil, at)
	}
	warming := pod("u", v1alpha1.PodWarming, "", "")
	look("at first", 0, warming)
	look("again", time.Second, pod("v", v1alpha1.PodIdle, "", ""), warming)
	look("idle", 0, pod("u", v1alpha1.PodIdle, "", ""))
	look("starting", 0, pod("u", v1alpha1.PodStarting, "c", ""))
	look("starting still", time.Second, pod("u", v1alpha1.PodStarting, "c", ""))
	look("for another claim", 0, pod("u", v1alpha1.PodStarting, "d", ""))
	look("warming again", 0, pod("u", v1alpha1.PodWarming, "", "x"))
	look("and once more, unseen between", 0, pod("u", v1alpha1.PodWarming, "", "y"))
	look("gone", 0)
	if len(s.pools) != 0 {
		t.Errorf("remembers %v", s.pools)
	}
}
