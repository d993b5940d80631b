package index

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/routing"
)

// each step is a store call and the hooks it must cause.
type step struct {
	name string
	do   func() error
	want string // hook calls, "; " between them
}

func runSteps(t *testing.T, j *journal, steps []step) {
	t.Helper()
	for _, s := range steps {
		must(t, s.do())
		if got := strings.Join(j.take(), "; "); got != s.want {
			t.Errorf("%s:\n got %q\nwant %q", s.name, got, s.want)
		}
	}
}

func TestPodHooks(t *testing.T) {
	var j journal
	_, pods, _, _ := unstarted(j.hooks())
	idle := idlePod("p", "10.0.0.1", 1)
	warming := edit(idle, phaseOf(v1alpha1.PodWarming))
	claimed := claimedPod("p", "s", "c", "10.0.0.1", 5)
	starting := edit(claimed, phaseOf(v1alpha1.PodStarting))
	now := metav1.Now()
	runSteps(t, &j, []step{
		{"warming", func() error { return pods.Add(warming) }, ""},
		{"idle", func() error { return pods.Update(idle) }, "available p"},
		{"idle still", func() error { return pods.Update(idle) }, "available p"},
		{"not Ready", func() error {
			return pods.Update(edit(idle, func(p *corev1.Pod) { p.Status.Conditions = nil }))
		}, "unavailable ns/pool uid-p"},
		{"idle again", func() error { return pods.Update(idle) }, "available p"},
		{"over, while its phase says idle", func() error {
			return pods.Update(edit(idle, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }))
		}, "unavailable ns/pool uid-p"},
		{"idle once more", func() error { return pods.Update(idle) }, "available p"},
		{"another pool", func() error {
			return pods.Update(edit(idle, func(p *corev1.Pod) { p.Labels[v1alpha1.LabelPool] = "pool2" }))
		}, "unavailable ns/pool uid-p; available p"},
		{"claimed, starting", func() error { return pods.Update(starting) }, "unavailable ns/pool2 uid-p; settled s"},
		{"status only", func() error { return pods.Update(starting) }, ""},
		{"running", func() error { return pods.Update(claimed) }, "settled s"},
		{"changed address", func() error {
			return pods.Update(edit(claimed, func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.2" }))
		}, "changed s; settled s"},
		{"running again", func() error { return pods.Update(claimed) }, "settled s"},
		{"over, while its phase says running", func() error {
			return pods.Update(edit(claimed, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }))
		}, "changed s; settled s"},
		{"running after all", func() error { return pods.Update(claimed) }, "settled s"},
		{"being deleted", func() error {
			return pods.Update(edit(claimed, func(p *corev1.Pod) { p.DeletionTimestamp = &now }))
		}, "changed s; settled s"},
		{"deleted", func() error { return pods.Delete(claimed) }, "settled s"},
		{"running at once", func() error { return pods.Add(claimed) }, "settled s"},
		{"recycled to another claim", func() error {
			return pods.Update(claimedPod("p", "s2", "c2", "10.0.0.1", 9))
		}, "changed s; settled s; settled s2"},
		{"deleted while running", func() error { return pods.Delete(claimed) }, "changed s2; settled s2"},
		{"deleted unheard of", func() error { return pods.Delete(claimed) }, ""},
	})
}

func TestSandboxHooks(t *testing.T) {
	var j journal
	_, _, sandboxes, _ := unstarted(j.hooks())
	unbound, bound := boundSandbox("s", "", ""), boundSandbox("s", "c", "p")
	now := metav1.Now()
	change := func(f func(*v1alpha1.Sandbox)) func() error {
		return func() error { return sandboxes.Update(edit(bound, f)) }
	}
	runSteps(t, &j, []step{
		{"new, unbound", func() error { return sandboxes.Add(unbound) }, "settled s"},
		{"bound", func() error { return sandboxes.Update(bound) }, "settled s"},
		{"status only", change(func(s *v1alpha1.Sandbox) { s.Status.Phase = v1alpha1.SandboxRunning }), ""},
		{"private", change(func(s *v1alpha1.Sandbox) { s.Spec.Network.Private = true }), "changed s; settled s"},
		{"public", func() error { return sandboxes.Update(bound) }, "changed s; settled s"},
		{"rebound", func() error { return sandboxes.Update(boundSandbox("s", "d", "q")) }, "changed s; over s c; settled s"},
		{"unbound again", func() error { return sandboxes.Update(unbound) }, "changed s; over s d; settled s"},
		{"bound anew", func() error { return sandboxes.Update(bound) }, "settled s"},
		{"ended", func() error { return sandboxes.Update(ended(bound)) }, "changed s; over s c; settled s"},
		{"deleted", func() error { return sandboxes.Delete(bound) }, "changed s; settled s"},
		{"first seen ended", func() error { return sandboxes.Add(ended(bound)) }, "changed s; over s c; settled s"},
		{"made anew under the ID, seen as a change", func() error { return sandboxes.Update(boundSandbox("s", "e", "r")) }, "changed s; settled s"},
		{"being deleted", func() error {
			return sandboxes.Update(edit(boundSandbox("s", "e", "r"), func(s *v1alpha1.Sandbox) { s.DeletionTimestamp = &now }))
		}, "changed s; over s e; settled s"},
		{"deleted unheard of", func() error { return sandboxes.Delete(boundSandbox("t", "", "")) }, "changed t; settled t"},
	})
}

func TestPoolHooks(t *testing.T) {
	var j journal
	x, _, _, pools := unstarted(j.hooks())
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec: v1alpha1.SandboxPoolSpec{FirstRequest: &v1alpha1.FirstRequest{Access: v1alpha1.AccessPublic}}}
	now := metav1.NewTime(time.Unix(1, 0))
	runSteps(t, &j, []step{{"new", func() error { return pools.Add(pool) }, "pool ns/p true"}})
	if p, ok := x.Pool("ns", "p"); !ok || p.Access() != v1alpha1.AccessPublic || p.UID != "u" || len(x.Pools()) != 1 {
		t.Errorf("pool %+v, %v", p, ok)
	}
	runSteps(t, &j, []step{{"being deleted", func() error {
		return pools.Update(edit(pool, func(p *v1alpha1.SandboxPool) { p.DeletionTimestamp = &now }))
	}, "pool ns/p true"}})
	if p, ok := x.Pool("ns", "p"); !ok || p.Access() != "" || !p.Deleting {
		t.Errorf("a pool being deleted gives access: %+v", p)
	}
	runSteps(t, &j, []step{{"vanished", func() error { return pools.Replace(nil, "9") }, "pool ns/p false"}})
	if _, ok := x.Pool("ns", "p"); ok || (PoolInfo{}).Access() != "" {
		t.Error("the pool is still there")
	}
}

// What a list lacks is gone, with the hooks of a delete; PodsSeen comes last.
func TestReplace(t *testing.T) {
	var j journal
	x, pods, sandboxes, _ := unstarted(j.hooks())
	must(t, pods.Add(claimedPod("p", "s", "c", "10.0.0.1", 5)))
	must(t, pods.Add(idlePod("q", "10.0.0.2", 6)))
	must(t, sandboxes.Add(boundSandbox("s", "c", "p")))
	must(t, sandboxes.Add(boundSandbox("t", "d", "r")))
	j.take()

	must(t, pods.Replace([]any{idlePod("n", "10.0.0.3", 8)}, "20"))
	got := j.take()
	slices.Sort(got[1 : len(got)-1])
	if want := []string{"available n", "changed s", "settled s", "unavailable ns/pool uid-q", "seen 20"}; !slices.Equal(got, want) {
		t.Errorf("pods: %q, want %q", got, want)
	}
	if x.PodRV() != 20 {
		t.Errorf("PodRV = %d, want 20", x.PodRV())
	}
	must(t, sandboxes.Replace([]any{boundSandbox("t", "d", "r")}, "30"))
	if got, want := j.take(), []string{"changed s", "over s c", "settled s"}; !slices.Equal(got, want) {
		t.Errorf("sandboxes: %q, want %q", got, want)
	}
	if x.Resolve("s").State != routing.Unknown || x.Resolve("t").State != routing.Starting || x.PodRV() != 20 {
		t.Error("wrong records after the lists")
	}
	// A name used again is another pod.
	again := idlePod("n", "10.0.0.3", 22)
	again.UID = "uid-again"
	must(t, pods.Replace([]any{again}, "23"))
	if got, want := j.take(), []string{"available n", "unavailable ns/pool uid-n", "seen 23"}; !slices.Equal(got, want) {
		t.Errorf("recreated: %q, want %q", got, want)
	}
}

// What a streamed list keeps of an object gives the same records.
func TestCompact(t *testing.T) {
	var j journal
	x, pods, sandboxes, _ := unstarted(j.hooks())
	small := func(s *store, obj any) any {
		o, err := s.Transformer()(obj)
		must(t, err)
		return o
	}
	running := small(pods, claimedPod("p", "s", "c", "10.0.0.1", 5))
	if _, ok := running.(listedPod); !ok {
		t.Errorf("a running pod is kept as %T", running)
	}
	idle := small(pods, idlePod("q", "10.0.0.2", 6))
	if _, ok := idle.(*corev1.Pod); !ok {
		t.Errorf("a pod to offer is kept as %T", idle)
	}
	broken := claimedPod("b", "t", "d", "10.0.0.4", 5)
	broken.ResourceVersion = "x"
	must(t, pods.Replace([]any{running, idle, small(pods, broken)}, "20"))
	must(t, sandboxes.Replace([]any{small(sandboxes, boundSandbox("s", "c", "p")), small(sandboxes, boundSandbox("t", "d", "b"))}, "20"))
	if a := x.Resolve("s"); a.State != routing.Running || a.Route.PodRV != 5 {
		t.Errorf("answer %+v", a)
	}
	if a := x.Resolve("t"); a.State != routing.Starting {
		t.Errorf("a pod without a comparable version answers: %+v", a)
	}
	if !slices.Contains(j.take(), "available q") {
		t.Error("the idle pod was not offered")
	}
}

// An object that cannot be read counts as gone.
func TestUnreadableObject(t *testing.T) {
	var j journal
	x, pods, sandboxes, _ := unstarted(j.hooks())
	must(t, sandboxes.Add(boundSandbox("s", "c", "p")))
	good := claimedPod("p", "s", "c", "10.0.0.1", 5)
	must(t, pods.Add(good))
	if x.Resolve("s").State != routing.Running {
		t.Fatal("not running")
	}
	must(t, pods.Update(edit(good, func(p *corev1.Pod) { p.ResourceVersion = "x" })))
	if x.Resolve("s").State != routing.Starting {
		t.Error("the old record still answers")
	}
	must(t, pods.Add(&v1alpha1.Sandbox{}))
	must(t, pods.Delete(&v1alpha1.Sandbox{}))
	pods.UpdateResourceVersion("x")
	if x.PodRV() != 0 {
		t.Error("progress without a version")
	}
}
