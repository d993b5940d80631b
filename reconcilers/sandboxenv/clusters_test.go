package sandboxenv

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// A pool that was made for a cluster which the env names no more is taken over: the
// controller's cluster ID was changed, and the entry in the env with it.
func TestChangedClusterID(t *testing.T) {
	b := newBench(t, template(), env(two))
	b.reconcile()
	of := func(want string) {
		t.Helper()
		var p v1alpha1.SandboxPool
		if b.get("m", &p); clusterOf(&p) != want || p.Annotations[v1alpha1.AnnotationDraining] != "" || p.Spec.Replicas != 2 {
			t.Errorf("the pool is of cluster %q, want %q; annotations %v, %d replicas", clusterOf(&p), want, p.Annotations, p.Spec.Replicas)
		}
	}
	change := func(how func(*v1alpha1.SandboxEnv)) (after v1alpha1.SandboxEnv) {
		t.Helper()
		var e v1alpha1.SandboxEnv
		b.get("e", &e)
		how(&e)
		if err := b.c.Update(t.Context(), &e); err != nil {
			t.Fatal(err)
		}
		b.reconcile()
		b.get("e", &after)
		return after
	}
	of("local")
	b.r.LocalClusterID = "renamed"
	change(func(*v1alpha1.SandboxEnv) {}) // its entry is still there, and another's
	of("local")
	// Another controller may work on the entry of that name.
	e := change(func(e *v1alpha1.SandboxEnv) {
		e.Spec.Clusters = append(e.Spec.Clusters, v1alpha1.EnvCluster{ClusterID: "renamed", Members: e.Spec.Clusters[0].Members})
		e.Spec.Clusters[0].Members = nil
	})
	of("local")
	if m := membersIn(&e, "renamed"); len(m) != 1 || m[0].State != v1alpha1.MemberInconsistent {
		t.Errorf("members %+v", m)
	}
	e = change(func(e *v1alpha1.SandboxEnv) { e.Spec.Clusters = e.Spec.Clusters[1:] })
	of("renamed")
	if m := membersIn(&e, "renamed"); len(m) != 1 || m[0].State != v1alpha1.MemberActive || e.Status.Members != 1 {
		t.Errorf("members %+v, %d in all", m, e.Status.Members)
	}
	// What the env names no more is drained, whichever of the two had made it.
	change(func(e *v1alpha1.SandboxEnv) { e.Spec.Clusters[0].ClusterID = "again" })
	b.r.LocalClusterID = "again"
	change(func(e *v1alpha1.SandboxEnv) { e.Spec.Clusters[0].Members = nil })
	var p v1alpha1.SandboxPool
	if b.get("m", &p); p.Annotations[v1alpha1.AnnotationDraining] == "" {
		t.Error("the pool of a cluster that there is no more is not drained")
	}
}

// Which of the two comes first, an entry's new name or the controller's, makes no difference: a
// controller without an entry drains nothing, and says so.
func TestRenamedEntryDrainsNothing(t *testing.T) {
	b := newBench(t, template(), env(two))
	b.reconcile()
	rename := func(to string) (e v1alpha1.SandboxEnv) {
		t.Helper()
		b.get("e", &e)
		e.Spec.Clusters[0].ClusterID = to
		if err := b.c.Update(t.Context(), &e); err != nil {
			t.Fatal(err)
		}
		b.reconcile()
		b.get("e", &e)
		return e
	}
	e := rename("renamed")
	var p v1alpha1.SandboxPool
	if b.get("m", &p); clusterOf(&p) != "local" || p.Annotations[v1alpha1.AnnotationDraining] != "" || p.Spec.Replicas != 2 {
		t.Errorf("the pool is of cluster %q; annotations %v, %d replicas", clusterOf(&p), p.Annotations, p.Spec.Replicas)
	}
	c := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.EnvConditionTemplateConsistent)
	if m := membersIn(&e, "local"); len(m) != 1 || m[0].State != v1alpha1.MemberInconsistent || c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "no entry for local") {
		t.Errorf("members %+v, condition %+v", m, c)
	}
	b.r.LocalClusterID = "renamed"
	b.reconcile()
	b.get("e", &e)
	if b.get("m", &p); clusterOf(&p) != "renamed" || p.Spec.Replicas != 2 || !meta.IsStatusConditionTrue(e.Status.Conditions, v1alpha1.EnvConditionTemplateConsistent) {
		t.Errorf("the controller has its new name: the pool is of cluster %q, %d replicas; %+v", clusterOf(&p), p.Spec.Replicas, e.Status.Conditions)
	}
}

func membersIn(e *v1alpha1.SandboxEnv, cluster string) []v1alpha1.ObservedMember {
	for _, c := range e.Status.Clusters {
		if c.ClusterID == cluster {
			return c.ObservedMembers
		}
	}
	return nil
}

// What the controller of a cluster said that the env names no more neither makes the env
// Ready nor counts.
func TestGoneClusterDoesNotCount(t *testing.T) {
	e := env(two)
	e.Status.Clusters = []v1alpha1.EnvClusterStatus{{ClusterID: "gone", ObservedMembers: []v1alpha1.ObservedMember{
		{Name: "far", State: v1alpha1.MemberActive, Idle: 7, Running: 3}, {Name: "lost", State: v1alpha1.MemberMissing},
	}}}
	b := newBench(t, template(), e)
	b.reconcile()
	var now v1alpha1.SandboxEnv
	b.get("e", &now)
	s := now.Status
	if meta.IsStatusConditionTrue(s.Conditions, v1alpha1.EnvConditionReady) || meta.IsStatusConditionFalse(s.Conditions, v1alpha1.EnvConditionTemplateConsistent) ||
		s.Idle != 0 || s.Running != 0 || s.Members != 1 {
		t.Errorf("status %+v", s)
	}
	if len(membersIn(&now, "gone")) != 2 {
		t.Error("the entry of another cluster was changed")
	}
	now.Spec.Clusters = append(now.Spec.Clusters, v1alpha1.EnvCluster{ClusterID: "gone", Members: []v1alpha1.EnvMember{{Name: "far"}, {Name: "lost"}}})
	if err := b.c.Update(t.Context(), &now); err != nil {
		t.Fatal(err)
	}
	b.reconcile()
	b.get("e", &now)
	if !meta.IsStatusConditionPresentAndEqual(now.Status.Conditions, v1alpha1.EnvConditionReady, metav1.ConditionTrue) || now.Status.Idle != 7 {
		t.Errorf("status %+v", now.Status)
	}
}
