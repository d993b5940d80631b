package history

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// hibernates is the sandbox without a pod, whose address on record is of a claim, fenced at
// that time if it is not 0.
func hibernates(id, claim string, fenced int) *v1alpha1.Sandbox {
	s := sandbox(id, "", 0)
	s.Spec.Binding, s.Spec.Paused, s.Spec.PauseMode, s.Spec.Restore = nil, true, v1alpha1.PauseHibernate, &v1alpha1.Restore{Checkpoint: "cp"}
	s.Status.Address, s.Status.AddressClaim = "198.18.0.2", claim
	if fenced > 0 {
		s.Status.FencedAt = &metav1.MicroTime{Time: at(fenced)}
	}
	return s
}

// resumed is a sandbox in its next pod, whose status is that of the pod before.
func resumed(id, pod string, of *v1alpha1.Sandbox) *v1alpha1.Sandbox {
	s := sandbox(id, pod, 0)
	s.Spec.PauseMode, s.Status = v1alpha1.PauseHibernate, of.Status
	return s
}

// takes has the record take in a list of one sandbox at a time, after nothing was heard since
// another.
func takes(t *testing.T, r *Recorder, s *v1alpha1.Sandbox, since, now int) {
	t.Helper()
	if err := r.takeList(&v1alpha1.SandboxList{Items: []v1alpha1.Sandbox{*s}}, at(since), at(now)); err != nil {
		t.Fatal(err)
	}
}

// A pod that a hibernating sandbox gave up is bound to it until its claim was fenced, or
// until it was let go; the next pod is no second one, and the fence not its end.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	for name, fenced := range map[string]int{"fenced on record": 4, "let go": 0} {
		r := NewRecorder()
		first, second := pod("p1", "a", "198.18.0.2", 1), pod("p2", "a", "198.18.0.3", 6)
		first.Finalizers, second.Finalizers = []string{v1alpha1.FinalizerPod}, []string{v1alpha1.FinalizerPod}
		rests := hibernates("a", "claim-ap1", fenced)
		r.Event(watch.Event{Type: watch.Added, Object: sandbox("a", "p1", 0)}, at(1))
		r.Event(watch.Event{Type: watch.Added, Object: first}, at(1))
		r.Event(watch.Event{Type: watch.Modified, Object: hibernates("a", "claim-ap1", 0)}, at(3))
		if c := r.Claims("a")[0]; !c.Over.IsZero() || !c.GivenUp.Equal(at(3)) {
			t.Errorf("%s: given up: %+v", name, c)
		}
		r.Event(watch.Event{Type: watch.Modified, Object: rests}, at(4))
		r.Event(watch.Event{Type: watch.Modified, Object: resumed("a", "p2", rests)}, at(6))
		r.Event(watch.Event{Type: watch.Added, Object: second}, at(6))
		let := first.DeepCopy()
		let.Finalizers = nil
		r.Event(watch.Event{Type: watch.Modified, Object: let}, at(8))
		over := map[bool]int{true: fenced, false: 8}[fenced > 0]
		all := r.Claims("a")
		if len(all) != 2 || !all[0].Over.Equal(at(over)) || !all[1].Over.IsZero() {
			t.Errorf("%s: %+v", name, all)
		}
		if got := r.Doubled(at(0)); got != nil {
			t.Errorf("%s: %v", name, got)
		}
		if r.Judge(Answer{ID: "a", PodUID: "p1", Process: "x", Begin: at(9), End: at(9)}) == nil {
			t.Errorf("%s: an answer of the pod that was given up is right", name)
		}
		if err := r.Judge(Answer{ID: "a", PodUID: "p2", Process: "y", Begin: at(9), End: at(9)}); err != nil {
			t.Errorf("%s: an answer of the next pod: %v", name, err)
		}
		// Two pods between two times that it hibernates are doubled.
		r.Event(watch.Event{Type: watch.Modified, Object: resumed("a", "p3", rests)}, at(10))
		r.Event(watch.Event{Type: watch.Added, Object: pod("p3", "a", "198.18.0.4", 10)}, at(10))
		if got := r.Doubled(at(0)); len(got) != 1 || !strings.Contains(got[0], "the 2 pods [p2 p3]") {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The address of a pod that was given up serves nobody else before: that is trouble.
func TestAddressOfWhatWasGivenUp(t *testing.T) {
	t.Parallel()
	r := NewRecorder()
	first := pod("p1", "a", "198.18.0.2", 1)
	first.Finalizers = []string{v1alpha1.FinalizerPod}
	r.Event(watch.Event{Type: watch.Added, Object: sandbox("a", "p1", 0)}, at(1))
	r.Event(watch.Event{Type: watch.Added, Object: first}, at(1))
	r.Event(watch.Event{Type: watch.Modified, Object: hibernates("a", "claim-ap1", 0)}, at(3))
	r.Event(watch.Event{Type: watch.Added, Object: sandbox("b", "p2", 0)}, at(4))
	r.Event(watch.Event{Type: watch.Added, Object: pod("p2", "b", "198.18.0.2", 4)}, at(4))
	if got := strings.Join(r.Trouble(), ""); !strings.Contains(got, "not over") {
		t.Errorf("while the pod is not let go: %q", got)
	}
	r.Event(watch.Event{Type: watch.Deleted, Object: first}, at(5))
	if got := r.Trouble(); got != nil { // when in between it was fenced the record cannot tell
		t.Errorf("afterwards: %v", got)
	}
}

// One that ends while it hibernates has the end on record of its last claim; what came and
// went while a watch was broken is known by the next list.
func TestEndOfWhatHibernates(t *testing.T) {
	t.Parallel()
	r := NewRecorder()
	r.Event(watch.Event{Type: watch.Added, Object: sandbox("a", "p1", 0)}, at(1))
	r.Event(watch.Event{Type: watch.Added, Object: pod("p1", "a", "198.18.0.2", 1)}, at(1))
	next := resumed("a", "p2", hibernates("a", "claim-ap1", 0))
	takes(t, r, next, 2, 5)
	r.Event(watch.Event{Type: watch.Added, Object: pod("p2", "a", "198.18.0.3", 5)}, at(5))
	if all := r.Claims("a"); len(all) != 2 || all[0].GivenUp.IsZero() || !all[1].GivenUp.IsZero() || r.Doubled(at(0)) != nil {
		t.Errorf("%+v", all)
	}
	ends := hibernates("a", "claim-ap2", 0)
	ends.Spec.End = &v1alpha1.End{At: metav1.NewTime(at(7)), Reason: v1alpha1.EndReleased}
	r.Event(watch.Event{Type: watch.Modified, Object: ends}, at(7))
	if all := r.Claims("a"); !all[0].Ended.IsZero() || all[1].Ended.IsZero() || all[1].GivenUp.IsZero() {
		t.Errorf("ended: %+v", all)
	}
}

// The end of a resumed sandbox may be written while its status is that of the pod before: the
// fence on record is not the next pod's.
func TestEndWhileTheFenceIsOfThePodBefore(t *testing.T) {
	t.Parallel()
	r := NewRecorder()
	rests := hibernates("a", "claim-ap1", 4)
	r.Event(watch.Event{Type: watch.Added, Object: sandbox("a", "p1", 0)}, at(1))
	r.Event(watch.Event{Type: watch.Added, Object: pod("p1", "a", "198.18.0.2", 1)}, at(1))
	r.Event(watch.Event{Type: watch.Modified, Object: rests}, at(4))
	next := resumed("a", "p2", rests)
	r.Event(watch.Event{Type: watch.Modified, Object: next}, at(6))
	r.Event(watch.Event{Type: watch.Added, Object: pod("p2", "a", "198.18.0.3", 6)}, at(6))
	ends := next.DeepCopy()
	ends.Spec.End = &v1alpha1.End{At: metav1.NewTime(at(8)), Reason: v1alpha1.EndReleased}
	r.Event(watch.Event{Type: watch.Modified, Object: ends}, at(8))
	if err := r.Judge(Answer{ID: "a", PodUID: "p2", Process: "x", Begin: at(7), End: at(7)}); err != nil {
		t.Errorf("before the end: %v", err)
	}
	fenced := ends.DeepCopy()
	fenced.Status.Address, fenced.Status.AddressClaim, fenced.Status.FencedAt = "198.18.0.3", "claim-ap2", &metav1.MicroTime{Time: at(9)}
	r.Event(watch.Event{Type: watch.Modified, Object: fenced}, at(10))
	if r.Judge(Answer{ID: "a", PodUID: "p2", Process: "x", Begin: at(10), End: at(10)}) == nil {
		t.Error("an answer after its own fence is right")
	}
}

// The watch of pods may be ahead of that of Sandboxes: a claim that no Sandbox has named yet is
// not given up with the one before it. Nor is what one named that was not seen to hibernate,
// since nothing was heard of it then.
func TestPodSeenBeforeItsSandbox(t *testing.T) {
	t.Parallel()
	r := NewRecorder()
	r.Event(watch.Event{Type: watch.Added, Object: sandbox("a", "p1", 0)}, at(1))
	r.Event(watch.Event{Type: watch.Added, Object: pod("p1", "a", "198.18.0.2", 1)}, at(1))
	r.Event(watch.Event{Type: watch.Added, Object: pod("p2", "a", "198.18.0.3", 5)}, at(5))
	rests := hibernates("a", "claim-ap1", 4)
	r.Event(watch.Event{Type: watch.Modified, Object: rests}, at(6))
	r.Event(watch.Event{Type: watch.Modified, Object: resumed("a", "p2", rests)}, at(7))
	if all := r.Claims("a"); !all[0].GivenUp.Equal(at(6)) || !all[1].GivenUp.IsZero() || !all[1].Over.IsZero() {
		t.Errorf("%+v", all)
	}
	freezes := resumed("a", "p3", rests)
	freezes.Spec.PauseMode = v1alpha1.PauseFreeze
	takes(t, r, freezes, 8, 9)
	r.Event(watch.Event{Type: watch.Added, Object: pod("p3", "a", "198.18.0.4", 9)}, at(9))
	r.Event(watch.Event{Type: watch.Modified, Object: hibernates("a", "claim-ap3", 0)}, at(10))
	if got := r.Doubled(at(0)); got != nil {
		t.Errorf("%v", got)
	}
	takes(t, r, sandbox("b", "p4", 0), 10, 11)
	r.Event(watch.Event{Type: watch.Added, Object: pod("p4", "b", "198.18.0.5", 11)}, at(11))
	takes(t, r, sandbox("b", "p5", 0), 11, 12) // which never paused
	r.Event(watch.Event{Type: watch.Added, Object: pod("p5", "b", "198.18.0.6", 12)}, at(12))
	if got := r.Doubled(at(0)); len(got) != 1 || !strings.Contains(got[0], "sandbox b ") {
		t.Errorf("a second pod while nothing was heard: %v", got)
	}
}
