package history

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

var start = time.Now()

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func sandbox(id, pod string, fenced int) *v1alpha1.Sandbox {
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: id, UID: types.UID("uid-" + id)}}
	s.Spec.Binding = &v1alpha1.Binding{ClaimID: "claim-" + id + pod, PodName: pod, PodUID: pod}
	if fenced > 0 {
		s.Spec.End = &v1alpha1.End{At: metav1.NewTime(at(fenced - 1))}
		s.Status.FencedAt = &metav1.MicroTime{Time: at(fenced)}
	}
	return s
}

func pod(uid, id, address string, claimed int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: uid, UID: types.UID(uid), Labels: map[string]string{v1alpha1.LabelSandboxID: id},
		Annotations: map[string]string{v1alpha1.AnnotationClaimedAt: at(claimed).Format(time.RFC3339Nano), v1alpha1.AnnotationClaim: "claim-" + id + uid, v1alpha1.AnnotationAddress: address},
	}}
}

// The judge is what all chaos tests rest on: it must find what is wrong.
func TestJudge(t *testing.T) {
	t.Parallel()
	r := NewRecorder()
	r.Event(watch.Event{Type: watch.Added, Object: sandbox("a", "p1", 0)}, at(0))
	r.Event(watch.Event{Type: watch.Added, Object: pod("p1", "a", "198.18.0.2", 0)}, at(0))
	r.Event(watch.Event{Type: watch.Modified, Object: sandbox("a", "p1", 10)}, at(11))
	r.Event(watch.Event{Type: watch.Added, Object: sandbox("b", "p2", 0)}, at(20))
	r.Event(watch.Event{Type: watch.Added, Object: pod("p2", "b", "198.18.0.2", 20)}, at(20))
	for name, tc := range map[string]struct {
		answer Answer
		want   string
	}{
		"while bound":           {Answer{ID: "a", PodUID: "p1", Process: "x", Begin: at(1), End: at(2)}, ""},
		"ended, not fenced":     {Answer{ID: "a", PodUID: "p1", Process: "x", Begin: at(9), End: at(12)}, ""},
		"after the fence":       {Answer{ID: "a", PodUID: "p1", Process: "x", Begin: at(11), End: at(12)}, "until 1s before"},
		"another sandbox's pod": {Answer{ID: "a", PodUID: "p2", Process: "y", Begin: at(19), End: at(21)}, "is bound to b"},
		"a free pod":            {Answer{ID: "a", PodUID: "p3", Process: "z", Begin: at(1), End: at(2)}, "no sandbox"},
		"one process, two pods": {Answer{ID: "b", PodUID: "p2", Process: "w", Begin: at(21), End: at(22)}, "calls itself"},
	} {
		if name == "one process, two pods" {
			_ = r.Judge(Answer{ID: "a", PodUID: "p1", Process: "w", Begin: at(1), End: at(2)})
		}
		err := r.Judge(tc.answer)
		if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	if r.Reused() != 1 || !r.UsedAfter(r.Claims("a")[0]) || r.UsedAfter(r.Claims("b")[0]) {
		t.Errorf("%d addresses used again, want 1", r.Reused())
	}
	// The end of a was seen at 11, b's claim came at 20.
	if r.ReusedWithin(9*time.Second) != 0 || r.ReusedWithin(10*time.Second) != 1 {
		t.Errorf("%d addresses used again within 9 s, %d within 10 s, want 0 and 1", r.ReusedWithin(9*time.Second), r.ReusedWithin(10*time.Second))
	}
	if trouble := r.Trouble(); trouble != nil {
		t.Errorf("trouble: %v", trouble)
	}
}

func TestTrouble(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		events []watch.Event
		want   string
	}{
		"address given on too early": {[]watch.Event{
			{Type: watch.Added, Object: sandbox("a", "p1", 0)}, {Type: watch.Added, Object: pod("p1", "a", "198.18.0.2", 0)},
			{Type: watch.Added, Object: sandbox("b", "p2", 0)}, {Type: watch.Added, Object: pod("p2", "b", "198.18.0.2", 1)},
		}, "not over"},
		"address given on before the fence": {[]watch.Event{
			{Type: watch.Added, Object: sandbox("a", "p1", 10)}, {Type: watch.Added, Object: pod("p1", "a", "198.18.0.2", 0)},
			{Type: watch.Added, Object: sandbox("b", "p2", 0)}, {Type: watch.Added, Object: pod("p2", "b", "198.18.0.2", 9)},
		}, "not over"},
		"one pod, two sandboxes": {[]watch.Event{
			{Type: watch.Added, Object: sandbox("a", "p1", 0)}, {Type: watch.Added, Object: pod("p1", "a", "198.18.0.2", 0)},
			{Type: watch.Added, Object: sandbox("b", "p1", 0)}, {Type: watch.Added, Object: pod("p1", "b", "198.18.0.2", 1)},
		}, "claimed by 2"},
		"a failed watch": {[]watch.Event{{Type: watch.Error, Object: &metav1.Status{Message: "too old"}}}, "too old"},
	} {
		r := NewRecorder()
		for _, e := range tc.events {
			r.Event(e, at(0))
		}
		if got := strings.Join(r.Trouble(), "\n"); !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestGoneIsOver(t *testing.T) {
	t.Parallel()
	r := NewRecorder()
	r.Event(watch.Event{Type: watch.Added, Object: sandbox("a", "p1", 0)}, at(0))
	r.Event(watch.Event{Type: watch.Deleted, Object: sandbox("a", "p1", 0)}, at(5))
	if err := r.Judge(Answer{ID: "a", PodUID: "p1", Begin: at(6), End: at(7)}); err == nil {
		t.Error("an answer after the sandbox was gone is right")
	}
	if r.Sandboxes("a") != 1 || r.Pods("a") != 0 {
		t.Error("counts")
	}
}
