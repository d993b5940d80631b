package history

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// A sandbox that answered within its idle timeout before it was released for
// idleness, or afterwards, was released in use.
func TestJudgeRelease(t *testing.T) {
	t.Parallel()
	r := NewRecorder()
	for id, why := range map[string]v1alpha1.EndReason{"idle": v1alpha1.EndIdleTimeout, "told": v1alpha1.EndReleased} {
		s := sandbox(id, "pod-"+id, 11) // ended at 10
		s.Spec.End.Reason = why
		r.Event(watch.Event{Type: watch.Added, Object: s}, at(11))
		r.Event(watch.Event{Type: watch.Added, Object: pod("pod-"+id, id, "198.18.0.2", 1)}, at(11))
	}
	ended := r.Claims("idle")[0].Ended
	for name, tc := range map[string]struct {
		id     string
		before time.Duration // the end
		wrong  bool
	}{
		"long before":                {"idle", 5 * time.Second, false},
		"the history cannot tell":    {"idle", 3500 * time.Millisecond, false},
		"within the timeout":         {"idle", 2900 * time.Millisecond, true},
		"afterwards":                 {"idle", -2 * time.Second, true},
		"another reason for its end": {"told", time.Second, false},
	} {
		begin := ended.Add(-tc.before)
		err := r.JudgeRelease(Answer{ID: tc.id, PodUID: "pod-" + tc.id, Begin: begin, End: begin}, 4*time.Second)
		if (err != nil) != tc.wrong {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := r.Ends(at(0)); got[v1alpha1.EndIdleTimeout] != 1 || got[v1alpha1.EndReleased] != 1 || r.Applied(at(0)) != 2 || r.Applied(at(2)) != 0 {
		t.Errorf("ends %v, %d claims", got, r.Applied(at(0)))
	}
}

func TestDoubled(t *testing.T) {
	t.Parallel()
	r := NewRecorder()
	r.Event(watch.Event{Type: watch.Added, Object: sandbox("a", "p1", 0)}, at(0))
	r.Event(watch.Event{Type: watch.Added, Object: pod("p1", "a", "198.18.0.2", 1)}, at(1))
	// A binding that never came to be a claim.
	r.Event(watch.Event{Type: watch.Modified, Object: sandbox("a", "p2", 0)}, at(2))
	if got := r.Doubled(at(0)); got != nil {
		t.Errorf("a binding alone counts: %v", got)
	}
	r.Event(watch.Event{Type: watch.Added, Object: pod("p2", "a", "198.18.0.3", 3)}, at(3))
	if got := r.Doubled(at(0)); len(got) != 1 || !strings.Contains(got[0], "sandbox a has had the 2 pods [p1 p2]") {
		t.Errorf("two pods of one sandbox: %v", got)
	}
	if got := r.Doubled(at(2)); got != nil {
		t.Errorf("one of them is from before: %v", got)
	}
}

// A Sandbox that is made and goes while nothing is heard of Sandboxes is over for its pod;
// one that comes only after the list is not.
func TestNeverSeen(t *testing.T) {
	t.Parallel()
	r := NewRecorder()
	r.Event(watch.Event{Type: watch.Added, Object: pod("p1", "a", "198.18.0.2", 6)}, at(6))
	r.Event(watch.Event{Type: watch.Added, Object: pod("p2", "b", "198.18.0.3", 8)}, at(8))
	r.listed(map[string]bool{}, at(5), at(9))
	r.Event(watch.Event{Type: watch.Added, Object: sandbox("b", "p2", 0)}, at(10))
	r.Event(watch.Event{Type: watch.Added, Object: pod("p3", "c", "198.18.0.2", 11)}, at(11))
	if trouble := r.Trouble(); trouble != nil {
		t.Errorf("trouble: %v", trouble)
	}
	if b := r.Claims("b")[0]; !b.Over.IsZero() {
		t.Errorf("one that comes after the list is over: %+v", b)
	}
	r.Event(watch.Event{Type: watch.Added, Object: pod("p4", "d", "198.18.0.3", 12)}, at(12))
	if got := strings.Join(r.Trouble(), ""); !strings.Contains(got, "not over") {
		t.Errorf("its address was given on: %q", got)
	}
}

// What a list shows to be gone is over, and from when is not known.
func TestGoneInAGap(t *testing.T) {
	t.Parallel()
	r := NewRecorder()
	r.Event(watch.Event{Type: watch.Added, Object: sandbox("a", "p1", 0)}, at(0))
	r.Event(watch.Event{Type: watch.Added, Object: pod("p1", "a", "198.18.0.2", 0)}, at(0))
	r.Event(watch.Event{Type: watch.Added, Object: sandbox("b", "p2", 0)}, at(0))
	r.listed(map[string]bool{"uid-b": true}, at(5), at(9))
	r.Event(watch.Event{Type: watch.Added, Object: pod("p3", "c", "198.18.0.2", 7)}, at(10))
	if trouble := r.Trouble(); trouble != nil {
		t.Errorf("trouble: %v", trouble)
	}
	if err := r.Judge(Answer{ID: "a", PodUID: "p1", Process: "x", Begin: at(8), End: at(8)}); err != nil {
		t.Errorf("what the record cannot tell is wrong: %v", err)
	}
	if err := r.Judge(Answer{ID: "a", PodUID: "p1", Process: "x", Begin: at(10), End: at(10)}); err == nil {
		t.Error("an answer after the sandbox was gone is right")
	}
	if b := r.Claims("b")[0]; !b.Over.IsZero() {
		t.Errorf("what the list has is over: %+v", b)
	}
	r.Event(watch.Event{Type: watch.Added, Object: sandbox("d", "p4", 0)}, at(0))
	r.Event(watch.Event{Type: watch.Added, Object: pod("p4", "d", "198.18.0.4", 0)}, at(0))
	r.listed(map[string]bool{"uid-b": true}, at(12), at(15))
	r.Event(watch.Event{Type: watch.Added, Object: pod("p5", "e", "198.18.0.4", 11)}, at(15))
	if got := strings.Join(r.Trouble(), ""); !strings.Contains(got, "not over") {
		t.Errorf("an address was given on before the gap: %q", got)
	}
}
