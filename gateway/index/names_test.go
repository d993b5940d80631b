package index

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// A pool with rules for names, made at some second.
func namingPool(namespace, name, prefix string, at int64, reach v1alpha1.FirstRequestReach) *v1alpha1.SandboxPool {
	return &v1alpha1.SandboxPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.Unix(at, 0)},
		Spec: v1alpha1.SandboxPoolSpec{FirstRequest: &v1alpha1.FirstRequest{
			Access: v1alpha1.AccessAPIKey, Reach: reach, IDPrefix: prefix,
		}},
	}
}

// binding makes the pool's prefix one that binds other namespaces.
func binding(p *v1alpha1.SandboxPool) *v1alpha1.SandboxPool {
	p.Status.IDPrefix = p.Spec.FirstRequest.IDPrefix
	return p
}

func TestMayMake(t *testing.T) {
	var j journal
	x, _, _, pools := unstarted(j.hooks())
	stale := binding(namingPool("grey", "stale", "w", 1, ""))
	stale.Status.IDPrefix = "grey-"
	later := binding(namingPool("blue", "inner", "red-blue-", 5, ""))
	first, second := binding(namingPool("pink", "a", "same-", 9, "")), binding(namingPool("cyan", "b", "same-", 9, ""))
	first.UID, second.UID = "1", "2"
	for _, p := range []*v1alpha1.SandboxPool{
		binding(namingPool("red", "p", "red-", 2, "")), namingPool("red", "twin", "red-", 3, ""), namingPool("red", "longer", "red-x-", 8, ""),
		namingPool("blue", "late", "red-", 1, ""), later, namingPool("blue", "own", "w", 1, ""),
		namingPool("green", "none", "", 1, ""), stale, first, second,
	} {
		must(t, pools.Add(p))
	}
	for _, c := range []struct {
		namespace, pool, id string
		want                bool
	}{
		{"red", "p", "red-1", true},
		{"red", "twin", "red-1", true}, // shares the prefix within its namespace
		{"red", "p", "red-x-1", false}, // a longer one of its namespace fits
		{"red", "longer", "red-x-1", true},
		{"red", "other", "red-1", false},
		{"blue", "late", "red-1", false},       // older, but not allowed to bind others
		{"blue", "inner", "red-blue-1", false}, // longer, but younger than the other's
		{"red", "p", "red-blue-1", true},
		{"green", "none", "red-1", false},
		{"green", "none", "red", true},
		{"green", "none", "web", true}, // prefixes that are not allowed bind no other namespace
		{"blue", "late", "web", false}, // but their own namespace
		{"blue", "own", "web", true},
		{"green", "none", "grey-1", true}, // the status is of an earlier prefix
		{"pink", "a", "same-1", true},
		{"cyan", "b", "same-1", false}, // of equal age, with the greater UID
		{"red", "p", "green-1", true},
	} {
		if got := x.MayMake(c.namespace, c.pool, c.id); got != c.want {
			t.Errorf("%s/%s may make %s: %v", c.namespace, c.pool, c.id, got)
		}
	}
	must(t, pools.Delete(namingPool("red", "p", "red-", 2, "")))
	if !x.MayMake("blue", "inner", "red-blue-1") || !x.MayMake("green", "none", "red-1") {
		t.Error("a prefix outlives its pool")
	}
	must(t, pools.Update(edit(later, func(p *v1alpha1.SandboxPool) { p.Status.IDPrefix = "" })))
	if !x.MayMake("red", "twin", "red-blue-1") {
		t.Error("a prefix binds others though it is allowed no more")
	}
	if n := testing.AllocsPerRun(100, func() { x.MayMake("red", "p", "green-1") }); n != 0 {
		t.Errorf("it allocates %v times", n)
	}
}

// What a pool says of reach counts from the moment the watch shows it, and asking
// for it allocates nothing.
func TestReach(t *testing.T) {
	var j journal
	x, _, _, pools := unstarted(j.hooks())
	want := func(what string, want v1alpha1.FirstRequestReach) {
		t.Helper()
		if got := x.Reach("ns", "p"); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	p := namingPool("ns", "p", "", 1, "")
	want("unknown", v1alpha1.ReachKey)
	must(t, pools.Add(p))
	want("unset", v1alpha1.ReachKey)
	must(t, pools.Update(edit(p, func(p *v1alpha1.SandboxPool) { p.Spec.FirstRequest.Reach = v1alpha1.ReachToken })))
	want("by token", v1alpha1.ReachToken)
	public := edit(p, func(p *v1alpha1.SandboxPool) { p.Spec.FirstRequest.Access = v1alpha1.AccessPublic })
	must(t, pools.Update(public))
	want("public", v1alpha1.ReachPublic)
	now := metav1.NewTime(time.Unix(9, 0))
	must(t, pools.Update(edit(public, func(p *v1alpha1.SandboxPool) { p.DeletionTimestamp = &now })))
	want("being deleted", v1alpha1.ReachPublic)
	must(t, pools.Update(edit(p, func(p *v1alpha1.SandboxPool) { p.Spec.FirstRequest = nil })))
	want("closed", v1alpha1.ReachKey)
	must(t, pools.Update(public))
	must(t, pools.Delete(public))
	want("gone", v1alpha1.ReachKey)
	if n := testing.AllocsPerRun(100, func() { x.Reach("ns", "p") }); n != 0 {
		t.Errorf("it allocates %v times", n)
	}
}
