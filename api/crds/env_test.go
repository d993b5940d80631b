package crds_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// member and group are an env's spec with one of each.
func member(fields string) string {
	return `{templateRef: {name: a}, clusters: [{clusterID: local, members: [{name: m, ` + fields + `}]}]}`
}

func scaled(autoscaling, member string) string {
	return `{templateRef: {name: a}, autoscaling: ` + autoscaling + `, clusters: [{clusterID: local, members: [` + member + `]}]}`
}

// list joins what f makes of 0 to n-1.
func list(n int, f func(int) string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = f(i)
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func TestEnvRefusals(t *testing.T) {
	ns := kubetest.Namespace(t)
	members := func(n int) string {
		return `{templateRef: {name: a}, clusters: [{clusterID: local, members: ` + list(n, func(i int) string { return fmt.Sprintf("{name: m%d}", i) }) + `}]}`
	}
	clusters := func(n int) string {
		return `{templateRef: {name: a}, clusters: ` + list(n, func(i int) string { return fmt.Sprintf("{clusterID: c%d}", i) }) + `}`
	}
	for _, tc := range []struct{ name, spec, want string }{
		{"no template", `{}`, "spec.templateRef: Required value"},
		{"member's minimum above its maximum", member(`config: {minReplicas: 2, maxReplicas: 1}`), "minReplicas must not exceed maxReplicas"},
		{"group's minimum above its maximum", scaled(`{groups: [{name: default, minReplicas: 2, maxReplicas: 1}]}`, `{name: m}`), "minReplicas must not exceed maxReplicas"},
		{"unknown group while enabled", scaled(`{enabled: true, groups: [{name: default}]}`, `{name: m, config: {scalingGroup: other}}`), "config.scalingGroup of each member must be one of autoscaling.groups"},
		{"default group not listed while enabled", scaled(`{enabled: true, groups: [{name: other}]}`, `{name: m}`), "config.scalingGroup of each member must be one of autoscaling.groups"},
		{"no groups while enabled", scaled(`{enabled: true}`, `{name: m}`), "config.scalingGroup of each member must be one of autoscaling.groups"},
		{"our label", member(`labels: {sandlane.dev/env: b}`), "labels below sandlane.dev/ are set by Sandlane alone"},
		{"our annotation", member(`annotations: {sandlane.dev/adopted: b}`), "annotations below sandlane.dev/ are set by Sandlane alone"},
		{"65 members", members(65), "must have at most 64 items"},
		{"17 clusters", clusters(17), "must have at most 16 items"},
		{"the same member twice", `{templateRef: {name: a}, clusters: [{clusterID: local, members: [{name: m}, {name: m}]}]}`, "Duplicate value"},
		{"the same cluster twice", `{templateRef: {name: a}, clusters: [{clusterID: c}, {clusterID: c}]}`, "Duplicate value"},
		{"member's name is no DNS label", `{templateRef: {name: a}, clusters: [{clusterID: local, members: [{name: a.b}]}]}`, "clusters[0].members[0].name"},
		{"member's name is too long", `{templateRef: {name: a}, clusters: [{clusterID: local, members: [{name: ` + strings.Repeat("a", 64) + `}]}]}`, "clusters[0].members[0].name"},
		{"names of first requests without egress by name", `{templateRef: {name: a}, firstRequest: {access: Public, egress: {}}, clusters: [{clusterID: c, members: [{name: m, spec: {egress: ByName}}, {name: m2}]}]}`, "firstRequest.egress needs egress: ByName of each member"},
		{"negative replicas", member(`spec: {replicas: -1}`), "greater than or equal to 0"},
		{"word as idle timeout", member(`spec: {idleTimeout: never}`), "idleTimeout"},
		{"mode", scaled(`{scaleUp: {mode: Wild}}`, `{name: m}`), `"Default", "Conservative", "Aggressive"`},
		{"negative cooldown", scaled(`{scaleUp: {cooldown: -1s}}`, `{name: m}`), "cooldown"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := create(t, "SandboxEnv", ns, kubetest.Name("e"), tc.spec)
			if got := messages(t, err); !strings.Contains(got, tc.want) {
				t.Errorf("the API server says %q, want %q", got, tc.want)
			}
		})
	}
	for name, spec := range map[string]string{
		"64 members":               members(64),
		"16 clusters":              clusters(16),
		"unknown group while off":  scaled(`{groups: [{name: default}]}`, `{name: m, config: {scalingGroup: other}}`),
		"known groups":             scaled(`{enabled: true, groups: [{name: default}, {name: b}]}`, `{name: m}, {name: k, config: {scalingGroup: b}}`),
		"equal bounds":             member(`config: {minReplicas: 2, maxReplicas: 2}`),
		"somebody else's label":    member(`labels: {example.com/env: b}`),
		"no member, autoscaled":    `{templateRef: {name: a}, autoscaling: {enabled: true}}`,
		"members named as another": `{templateRef: {name: a}, clusters: [{clusterID: a, members: [{name: m}]}, {clusterID: b, members: [{name: m}]}]}`,
	} {
		if _, err := create(t, "SandboxEnv", ns, kubetest.Name("e"), spec); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := create(t, "SandboxEnv", ns, strings.Repeat("a", 64), member(`spec: {}`))
	if got := messages(t, err); !strings.Contains(got, "at most 63 characters") {
		t.Errorf("a long name: the API server says %q", got)
	}
}

// What is left out gets its default, but for replicas, which nobody may invent:
// kubectl apply replaces lists, and so takes away what the autoscaler wrote.
func TestEnvDefaults(t *testing.T) {
	c, ns := kubetest.Client(t), kubetest.Namespace(t)
	if _, err := create(t, "SandboxEnv", ns, "e", scaled(`{}`, `{name: m}, {name: k, spec: {idleTimeout: 0s}}`)); err != nil {
		t.Fatal(err)
	}
	var env v1alpha1.SandboxEnv
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: "e"}, &env); err != nil {
		t.Fatal(err)
	}
	m, n, a := env.Spec.Clusters[0].Members[0], env.Spec.Clusters[0].Members[1], env.Spec.Autoscaling
	if m.Spec.Replicas != nil || m.Spec.IdleTimeout != nil || n.Spec.IdleTimeout == nil || n.Spec.IdleTimeout.Duration != 0 {
		t.Errorf("replicas %v, idle timeouts %v and %v; want none, none and 0s", m.Spec.Replicas, m.Spec.IdleTimeout, n.Spec.IdleTimeout)
	}
	if m.Config.ScalingGroup != "default" || m.Spec.RecyclePolicy != v1alpha1.RecycleReplace || m.Spec.PodCreationImagePolicy != v1alpha1.ImagePolicyPoolDefault {
		t.Errorf("member %+v", m)
	}
	if a.Enabled || a.ScaleUp.Mode != v1alpha1.ScaleUpDefault || a.ScaleUp.Cooldown.Duration != 30*time.Second || a.ScaleUp.IdleThreshold.Duration != 30*time.Second ||
		a.ScaleUp.QuietWindow.Duration != 5*time.Minute || a.ScaleUp.SaturationCooldown.Duration != time.Minute ||
		a.ScaleDown.IdleTimeout.Duration != 5*time.Minute || a.ScaleDown.Stabilization.Duration != time.Minute {
		t.Errorf("autoscaling %+v", a)
	}
	// The parents of what the autoscaler writes are there.
	patch := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"test","path":"/spec/clusters/0/members/0/spec/replicas","value":null},
		{"op":"add","path":"/spec/clusters/0/members/0/spec/replicas","value":3}]`))
	if err := c.Patch(t.Context(), &env, patch); err != nil || *env.Spec.Clusters[0].Members[0].Spec.Replicas != 3 {
		t.Errorf("writing replicas: %v", err)
	}
}

// The pool of a sandbox with an env changes with its binding, and in no other write.
func TestSandboxEnv(t *testing.T) {
	const (
		unbind = `{"op":"remove","path":"/spec/binding"}`
		pool   = `{"op":"add","path":"/spec/pool","value":"`
	)
	bind := func(claim string) string {
		return `{"op":"add","path":"/spec/binding","value":{"claimID":"` + claim + `","podName":"p1","podUID":"u1"}}`
	}
	for _, spec := range []string{`{namespace: default}`, `{namespace: default, env: e, binding: {claimID: c, podName: p, podUID: u}}`} {
		_, err := create(t, "Sandbox", "", kubetest.Name("s"), spec)
		if got := messages(t, err); !strings.Contains(got, "pool is required") {
			t.Errorf("%s: the API server says %q", spec, got)
		}
	}
	obj, err := create(t, "Sandbox", "", kubetest.Name("s"), `{namespace: default, env: e}`)
	if err != nil {
		t.Fatal(err)
	}
	const immutable = "pool is immutable, but"
	for _, step := range []struct{ name, patch, refusal string }{
		{"another env", `{"op":"replace","path":"/spec/env","value":"f"}`, "env is immutable"},
		{"no env", `{"op":"remove","path":"/spec/env"},` + pool + `a"}`, "env is immutable"},
		{"a pool alone", pool + `a"}`, immutable},
		{"a binding alone", bind("c1"), "pool is required"},
		{"a pool and a binding", pool + `a"},` + bind("c1"), ""},
		{"another pool alone", pool + `b"}`, immutable},
		{"another pool with another pod of the same claim", pool + `b"},{"op":"replace","path":"/spec/binding/podName","value":"p2"}`, immutable},
		{"another pool in the write that unbinds", pool + `b"},` + unbind, immutable},
		{"no pool in the write that unbinds", `{"op":"remove","path":"/spec/pool"},` + unbind, immutable},
		{"another pool and another binding", pool + `b"},` + bind("c2"), ""},
		{"the same pool and another binding", bind("c3"), ""},
		{"unbind", unbind, ""},
		{"another pool while unbound", pool + `a"}`, immutable},
		{"another pool and a binding after that", pool + `a"},` + bind("c4"), ""},
		{"end", `{"op":"add","path":"/spec/end","value":{"reason":"Released","at":"2026-01-01T00:00:00Z"}}`, ""},
		{"another pool once ended", pool + `b"},` + bind("c5"), "binding cannot change once the sandbox has ended"},
	} {
		err := kubetest.Client(t).Patch(t.Context(), obj, client.RawPatch(types.JSONPatchType, []byte("["+step.patch+"]")))
		switch {
		case step.refusal == "" && err != nil:
			t.Errorf("%s: %v", step.name, err)
		case step.refusal != "" && !apierrors.IsInvalid(err):
			t.Errorf("%s: error %v, want a refusal", step.name, err)
		case step.refusal != "":
			if got := messages(t, err); !strings.Contains(got, step.refusal) {
				t.Errorf("%s: the API server says %q, want %q", step.name, got, step.refusal)
			}
		}
	}
	// Without an env not even with a binding.
	obj, err = create(t, "Sandbox", "", kubetest.Name("s"), sandboxSpec)
	if err != nil {
		t.Fatal(err)
	}
	err = kubetest.Client(t).Patch(t.Context(), obj, client.RawPatch(types.JSONPatchType, []byte("["+pool+`b"},`+bind("c1")+"]")))
	if got := messages(t, err); !strings.Contains(got, immutable) {
		t.Errorf("without an env: the API server says %q", got)
	}
}
