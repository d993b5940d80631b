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

func TestMayMake(t *testing.T) {
	var j journal
	x, _, _, pools := unstarted(j.hooks())
	for _, p := range []*v1alpha1.SandboxPool{
		namingPool("red", "p", "red-", 2, ""), namingPool("red", "twin", "red-", 3, ""),
		namingPool("blue", "late", "red-", 4, ""), namingPool("blue", "inner", "red-blue-", 5, ""),
		namingPool("green", "none", "", 1, ""),
	} {
		must(t, pools.Add(p))
	}
	for _, c := range []struct {
		namespace, pool, id string
		want                bool
	}{
		{"red", "p", "red-1", true},
		{"red", "twin", "red-1", true}, // shares the prefix of an older pool of its namespace
		{"blue", "late", "red-1", false},
		{"green", "none", "red-1", false},
		{"red", "other", "red-1", false},
		{"red", "p", "red-blue-1", false},
		{"blue", "inner", "red-blue-1", true},
		{"blue", "inner", "red-1", false},
		{"green", "none", "red", true},
		{"red", "p", "green-1", true},
	} {
		if got := x.MayMake(c.namespace, c.pool, c.id); got != c.want {
			t.Errorf("%s/%s may make %s: %v", c.namespace, c.pool, c.id, got)
		}
	}
	must(t, pools.Delete(namingPool("red", "p", "red-", 2, "")))
	must(t, pools.Delete(namingPool("red", "twin", "red-", 3, "")))
	if !x.MayMake("blue", "late", "red-1") {
		t.Error("a prefix outlives its pool")
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
