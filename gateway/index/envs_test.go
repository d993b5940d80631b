package index

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Claims of an env go to its own pools of this cluster, and to no other of a member's
// name.
func TestMembersOfAnEnv(t *testing.T) {
	x := New(Options{})
	yes := true
	ownedBy := func(kind string, uid types.UID) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Name: "x", UID: uid, Controller: &yes}}
	}
	pool := func(name string, change ...func(*v1alpha1.SandboxPool)) {
		p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: name, UID: types.UID("uid-" + name), OwnerReferences: ownedBy("SandboxEnv", "env"), Annotations: map[string]string{},
		}}
		for _, f := range change {
			f(p)
		}
		x.setPool(p)
	}
	now := metav1.Now()
	pool("own")
	pool("stranger", func(p *v1alpha1.SandboxPool) { p.OwnerReferences = nil })
	pool("others", func(p *v1alpha1.SandboxPool) { p.OwnerReferences = ownedBy("SandboxEnv", "another") })
	pool("going", func(p *v1alpha1.SandboxPool) { p.DeletionTimestamp = &now })
	pool("draining", func(p *v1alpha1.SandboxPool) { p.Annotations[v1alpha1.AnnotationDraining] = "2026" })
	pool("removed") // owned, and no member any more
	pool("elsewhere", func(p *v1alpha1.SandboxPool) { p.Annotations[v1alpha1.AnnotationCluster] = "remote" })
	until := metav1.NewTime(time.Now().Add(time.Hour).Truncate(time.Second))
	refused := func(p *v1alpha1.SandboxPool) {
		p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PoolConditionDegraded, Status: metav1.ConditionTrue, Reason: "Forbidden", Message: "exceeded quota"}}
	}
	for name, want := range map[string]struct {
		change func(*v1alpha1.SandboxPool)
		full   bool
	}{
		"refused":                    {refused, true},
		"refused, and has idle pods": {func(p *v1alpha1.SandboxPool) { refused(p); p.Status.Idle = 1 }, false},
		"another trouble":            {func(p *v1alpha1.SandboxPool) { refused(p); p.Status.Conditions[0].Reason = "ErrImagePull" }, false},
	} {
		pool(name, want.change)
		if p, _ := x.Pool("n", name); p.Full != want.full {
			t.Errorf("%s: full is %v", name, p.Full)
		}
	}
	pool("no image", func(p *v1alpha1.SandboxPool) {
		p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PoolConditionAvailable, Status: metav1.ConditionFalse, Reason: "ErrImagePull"}}
	})
	if p, _ := x.Pool("n", "no image"); p.NoStart != "ErrImagePull" {
		t.Errorf("a pool without its image: %+v", p)
	}
	pool("full", func(p *v1alpha1.SandboxPool) {
		p.Annotations[v1alpha1.AnnotationCluster] = "local"
		p.Status.AutoScaling = &v1alpha1.PoolAutoScaling{SaturatedUntil: &until}
		p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PoolConditionAvailable, Status: metav1.ConditionFalse, Reason: v1alpha1.PoolReasonMaxPods}}
	})
	env := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "e", UID: "env"}}
	env.Spec.FirstRequest = &v1alpha1.FirstRequest{Access: v1alpha1.AccessPublic}
	local := v1alpha1.EnvCluster{ClusterID: "local"}
	for i, name := range []string{"own", "stranger", "others", "going", "draining", "missing", "elsewhere", "full"} {
		local.Members = append(local.Members, v1alpha1.EnvMember{Name: name, Config: v1alpha1.EnvMemberConfig{Priority: int32(i)}}) //nolint:gosec // small
	}
	remote := v1alpha1.EnvCluster{ClusterID: "remote"}
	env.Spec.Clusters = []v1alpha1.EnvCluster{local, remote}
	x.setEnv(env)
	names := func(namespace, env string) []string {
		var all []string
		for _, m := range x.Members(namespace, env) {
			all = append(all, m.Name)
		}
		return all
	}
	if got := names("n", "e"); !slices.Equal(got, []string{"own", "full"}) {
		t.Errorf("members %v", got)
	}
	full := x.Members("n", "e")[1]
	if !full.Full || !full.SaturatedUntil.Equal(until.Time) || full.Config.Priority != 7 {
		t.Errorf("%+v", full)
	}
	if access, ok := x.EnvAccess("n", "e"); !ok || access != v1alpha1.AccessPublic || len(x.Envs()) != 1 {
		t.Errorf("a first request must show %q, %v", access, ok)
	}
	if got := append(names("n", "none"), names("other", "e")...); len(got) != 0 {
		t.Errorf("an env that there is not has %v", got)
	}

	// The ID of the controller's cluster was changed, and the pools do not say so yet.
	renamed := local
	renamed.ClusterID = "renamed"
	env.Spec.Clusters = []v1alpha1.EnvCluster{renamed, remote}
	x.setEnv(env)
	if got := names("n", "e"); !slices.Equal(got, []string{"own", "full"}) {
		t.Errorf("members under another cluster ID %v", got)
	}
	env.Spec.Clusters = []v1alpha1.EnvCluster{renamed, {ClusterID: "local", Members: local.Members[:1]}}
	x.setEnv(env)
	if got := names("n", "e"); !slices.Equal(got, []string{"own", "elsewhere"}) {
		t.Errorf("members, some of whose pools are of other entries: %v", got)
	}
	env.Spec.Clusters = []v1alpha1.EnvCluster{local, remote}

	// An env that was made for a pool belongs to it.
	env.OwnerReferences = ownedBy("SandboxPool", "uid-stranger")
	x.setEnv(env)
	if got := names("n", "e"); !slices.Equal(got, []string{"own", "stranger", "full"}) {
		t.Errorf("members of an adopted env %v", got)
	}
	env.DeletionTimestamp = &now
	x.setEnv(env)
	if access, _ := x.EnvAccess("n", "e"); len(names("n", "e")) != 0 || access != "" {
		t.Error("an env that is being deleted has members")
	}
	x.removeEnv("n/e")
	if _, ok := x.Env("n", "e"); ok || len(x.envKeys()) != 0 {
		t.Error("an env that is gone is known")
	}
}

// A sandbox whose pool is gone is reached as its env says; that of an adopted pool's is not.
func TestReachOfAnEnvsSandbox(t *testing.T) {
	x := New(Options{})
	p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "pool"}}
	p.Spec.FirstRequest = &v1alpha1.FirstRequest{Access: v1alpha1.AccessAPIKey, Reach: v1alpha1.ReachToken}
	env := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "e", UID: "env"}}
	env.Spec.FirstRequest = &v1alpha1.FirstRequest{Access: v1alpha1.AccessPublic, Reach: v1alpha1.ReachPublic}
	adopted := env.DeepCopy()
	adopted.Name, adopted.OwnerReferences = "adopted", []metav1.OwnerReference{*metav1.NewControllerRef(p, v1alpha1.GroupVersion.WithKind("SandboxPool"))}
	going := env.DeepCopy()
	going.Name, going.DeletionTimestamp = "going", new(metav1.Now())
	x.setPool(p)
	for _, e := range []*v1alpha1.SandboxEnv{env, adopted, going} {
		x.setEnv(e)
	}
	for _, c := range []struct {
		env, pool string
		want      v1alpha1.FirstRequestReach
	}{
		{"e", "p", v1alpha1.ReachToken}, {"e", "gone", v1alpha1.ReachPublic}, {"e", "", v1alpha1.ReachPublic},
		{"adopted", "gone", v1alpha1.ReachKey}, {"going", "gone", v1alpha1.ReachKey}, {"gone", "gone", v1alpha1.ReachKey}, {"", "gone", v1alpha1.ReachKey},
	} {
		if got := x.ReachOfEnv("n", c.env, c.pool); got != c.want {
			t.Errorf("env %q, pool %q: %s, want %s", c.env, c.pool, got, c.want)
		}
	}
}

// What an adopted pool itself asks of a first request counts, whatever its env's copy says.
func TestAccessOfAnAdoptedPool(t *testing.T) {
	x := New(Options{})
	p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "pool"}}
	p.Spec.FirstRequest = &v1alpha1.FirstRequest{Access: v1alpha1.AccessAPIKey}
	env := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "env", OwnerReferences: []metav1.OwnerReference{
		*metav1.NewControllerRef(p, v1alpha1.GroupVersion.WithKind("SandboxPool")),
	}}}
	env.Spec.FirstRequest = &v1alpha1.FirstRequest{Access: v1alpha1.AccessPublic}
	x.setEnv(env)
	want := func(access v1alpha1.FirstRequestAccess, when string) {
		t.Helper()
		if got, ok := x.EnvAccess("n", "p"); !ok || got != access {
			t.Errorf("%s: %q, %v, want %q", when, got, ok, access)
		}
	}
	want("", "before the pool is known")
	x.setPool(p)
	want(v1alpha1.AccessAPIKey, "the pool asks for a key")
	closed := p.DeepCopy()
	closed.Spec.FirstRequest = nil
	x.setPool(closed)
	want("", "the pool takes no first requests")
	other := p.DeepCopy()
	other.UID = "another"
	x.setPool(other)
	want("", "another pool of that name")
}
