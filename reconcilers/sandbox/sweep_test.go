package sandbox

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/address"
)

// A claim without a sandbox is ended by the second look in a row that finds it:
// the sandbox of a fresh ID may be on its way.
func TestStrayIsSweptAtTheSecondLook(t *testing.T) {
	s, pod := bound()
	pod.Labels[v1alpha1.LabelPool] = "p"
	g := newRig(t, pod)
	w := &sweeper{r: g.Reconciler}
	swept := func() bool {
		t.Helper()
		g.candidateNow(t, "s")
		if err := w.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := g.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
		stopped := v1alpha1.PhaseOf(pod) == v1alpha1.PodStopping
		if stopped != (len(g.asked) > 0) {
			t.Errorf("the pod is %s, and fences were asked for %v", v1alpha1.PhaseOf(pod), g.asked)
		}
		return stopped
	}
	if swept() {
		t.Fatal("ended at first sight")
	}
	if err := g.Client.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if swept() {
		t.Fatal("ended though its sandbox has come")
	}
	if err := g.Client.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if swept() {
		t.Fatal("ended at first sight, because it had been without a sandbox before it had one")
	}
	if !swept() || g.asked[0] != "10.0.0.1" {
		t.Errorf("two looks found no sandbox: the pod is %s, and fences were asked for %v", v1alpha1.PhaseOf(pod), g.asked)
	}
}

// candidateNow is the part of a look at the ID that the sweep needs.
func (g *rig) candidateNow(t *testing.T, id string) {
	t.Helper()
	s := &v1alpha1.Sandbox{}
	if err := g.noteCandidate(t.Context(), id, s, g.Client.Get(t.Context(), client.ObjectKey{Name: id}, s)); err != nil {
		t.Fatal(err)
	}
}

// The pod of a claim that is fenced is swept too while it runs.
func TestAFencedStrayThatRunsIsStopped(t *testing.T) {
	_, pod := bound()
	pod.Labels[v1alpha1.LabelPool] = "p"
	g := newRig(t, pod)
	w := &sweeper{r: g.Reconciler}
	g.Ledger.NoteClaim("c", "s", "10.0.0.1")
	g.Ledger.NoteFenced("c", "10.0.0.1")
	g.clock.SetTime(now.Add(address.DefaultCooldown))
	for range 3 {
		g.candidateNow(t, "s")
		if err := w.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if phase := v1alpha1.PhaseOf(g.pod(t, "pod")); phase != v1alpha1.PodStopping || len(g.asked) != 1 {
		t.Errorf("the pod is %s, asked %v", phase, g.asked)
	}
}

// A candidate that is noted while the sweep reads it stays one: its claim came after the read.
func TestCandidateThatIsNotedDuringTheSweep(t *testing.T) {
	g := newRig(t)
	g.orphanCandidates.set("s", true)
	plain := g.APIReader.(client.WithWatch)
	g.APIReader = interceptor.NewClient(plain, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			g.orphanCandidates.set("s", true)
			return c.Get(ctx, key, o, opts...)
		},
	})
	w := &sweeper{r: g.Reconciler}
	if err := w.sweep(t.Context()); err != nil || !g.orphanCandidates.has("s") {
		t.Errorf("%v, still a candidate: %v", err, g.orphanCandidates.has("s"))
	}
	g.APIReader = plain
	if err := w.sweep(t.Context()); err != nil || g.orphanCandidates.has("s") {
		t.Errorf("%v, still a candidate without a stray: %v", err, g.orphanCandidates.has("s"))
	}
}

// Nothing is read from the API server while all claims have their sandboxes: a
// sweep costs the same for a hundred thousand as for none.
func TestSweepReadsSuspectsAlone(t *testing.T) {
	s, pod := endingOne()
	s.Spec.End = nil
	g := newRig(t, s, pod)
	w := &sweeper{r: g.Reconciler}
	g.Ledger.NoteClaim("c", "s", "10.0.0.1")
	for range 3 {
		if g.step(t); g.reads.Load() != 0 {
			t.Fatal("the look itself reads")
		}
		if err := w.sweep(t.Context()); err != nil || g.reads.Load() != 0 {
			t.Fatalf("%d live reads, %v", g.reads.Load(), err)
		}
	}
}

// Claims without a sandbox are found whatever else they lack: the label that names
// it, or the pod.
func TestStraysThatLackMore(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T, g *rig, pod *corev1.Pod){
		"the label was taken away": func(t *testing.T, g *rig, pod *corev1.Pod) {
			delete(pod.Labels, v1alpha1.LabelSandboxID)
			if err := g.Client.Create(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			for _, id := range sandboxIDOf(pod) {
				g.candidateNow(t, id)
			}
		},
		"pod and sandbox went by force": func(t *testing.T, g *rig, _ *corev1.Pod) {
			g.Ledger.NoteClaim("c", "s", "10.0.0.1")
			g.candidateNow(t, "s")
		},
		"they went before this leader's watches began": func(t *testing.T, g *rig, pod *corev1.Pod) {
			if err := g.Client.Create(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			if err := g.Ledger.Load(t.Context(), g.Client); err != nil {
				t.Fatal(err)
			}
			if err := g.Client.Delete(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, pod := bound()
			pod.Labels[v1alpha1.LabelPool], pod.Finalizers = "p", nil
			g := newRig(t)
			begin(t, g, pod)
			w := &sweeper{r: g.Reconciler}
			for look, want := range []int{0, 1} {
				if err := w.sweep(t.Context()); err != nil || len(g.asked) != want {
					t.Fatalf("look %d: fences asked for %v, %v", look+1, g.asked, err)
				}
			}
		})
	}
}
