package crds_test

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

const sandboxSpec = `{namespace: default, pool: p}`

func TestSandboxNames(t *testing.T) {
	for _, name := range []string{"a", "7", "a-b", strings.Repeat("a", 57), "i0123456789abcdefghij"} {
		if _, err := create(t, "Sandbox", "", name, sandboxSpec); err != nil {
			t.Errorf("name %q: %v", name, err)
		}
	}
	for _, name := range []string{strings.Repeat("a", 58), "a.b"} {
		_, err := create(t, "Sandbox", "", name, sandboxSpec)
		if got := messages(t, err); !strings.Contains(got, "a sandbox ID has 1 to 57 of a-z, 0-9 and dash") {
			t.Errorf("name %q: the API server says %q", name, got)
		}
	}
}

func TestSandboxRefusals(t *testing.T) {
	for _, tc := range []struct{ name, spec, want string }{
		{"no namespace", `{pool: p}`, "spec.namespace: Required value"},
		{"empty namespace", `{namespace: "", pool: p}`, "spec.namespace"},
		{"no pool", `{namespace: default}`, "pool is required"},
		{"end without a reason", `{namespace: default, pool: p, end: {at: "2026-01-01T00:00:00Z"}}`, "spec.end.reason: Required value"},
		{"unknown end reason", `{namespace: default, pool: p, end: {reason: Bored, at: "2026-01-01T00:00:00Z"}}`, `"IdleTimeout"`},
		{"end at no time", `{namespace: default, pool: p, end: {reason: Deleted, at: soon}}`, "date-time"},
		{"half a binding", `{namespace: default, pool: p, binding: {claimID: c, podName: p}}`, "spec.binding.podUID: Required value"},
		{"idle timeout", `{namespace: default, pool: p, timeouts: {idle: 1 week}}`, "spec.timeouts.idle"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := create(t, "Sandbox", "", kubetest.Name("s"), tc.spec)
			if got := messages(t, err); !strings.Contains(got, tc.want) {
				t.Errorf("the API server says %q, want %q", got, tc.want)
			}
		})
	}
}

// What each write to a sandbox must lead to, in order, on one object.
func TestSandboxLife(t *testing.T) {
	const (
		noEnd    = `{"op":"test","path":"/spec/end","value":null}`
		bind     = `{"op":"add","path":"/spec/binding","value":{"claimID":"c1","podName":"p1","podUID":"u1"}}`
		rebind   = `{"op":"replace","path":"/spec/binding","value":{"claimID":"c2","podName":"p2","podUID":"u2"}}`
		ours     = `{"op":"test","path":"/spec/binding/claimID","value":"c1"}`
		unbind   = `{"op":"remove","path":"/spec/binding"}`
		end      = `{"op":"add","path":"/spec/end","value":{"reason":"Released","at":"2026-01-01T00:00:00Z"}}`
		endAgain = `{"op":"add","path":"/spec/end","value":{"reason":"Failed","at":"2026-01-01T00:00:00Z"}}`
	)
	c := kubetest.Client(t)
	obj, err := create(t, "Sandbox", "", kubetest.Name("s"), sandboxSpec)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ name, patch, refusal string }{
		{"another namespace", `[{"op":"replace","path":"/spec/namespace","value":"other"}]`, "namespace is immutable"},
		{"another pool", `[{"op":"replace","path":"/spec/pool","value":"other"}]`, "pool is immutable"},
		{"a creation time afterwards", `[{"op":"add","path":"/spec/createdAt","value":"2026-01-01T00:00:00.000001Z"}]`, "createdAt is immutable"},
		{"bind", "[" + noEnd + "," + bind + "]", ""},
		{"unbind", "[" + noEnd + "," + ours + "," + unbind + "]", ""},
		{"bind again", "[" + noEnd + "," + bind + "]", ""},
		{"rebind", "[" + noEnd + "," + ours + "," + rebind + "]", ""},
		{"rebind with an old claim", "[" + noEnd + "," + ours + "," + rebind + "]", "test"},
		{"end", "[" + noEnd + "," + end + "]", ""},
		{"write that tests for no end", "[" + noEnd + "," + unbind + "]", "test"},
		{"another end", "[" + endAgain + "]", "end is final"},
		{"remove the end", `[{"op":"remove","path":"/spec/end"}]`, "end is final"},
		{"bind once ended", "[" + bind + "]", "binding cannot change once the sandbox has ended"},
		{"unbind once ended", "[" + unbind + "]", "binding cannot change once the sandbox has ended"},
		{"the same end", "[" + end + "]", ""},
		{"finalizer once ended", `[{"op":"add","path":"/metadata/finalizers","value":["sandlane.dev/sandbox"]}]`, ""},
	} {
		err := c.Patch(t.Context(), obj, client.RawPatch(types.JSONPatchType, []byte(step.patch)))
		switch {
		case step.refusal == "" && err != nil:
			t.Errorf("%s: %v", step.name, err)
		case step.refusal == "test":
			status, ok := err.(apierrors.APIStatus)
			if !ok || !apierrors.IsInvalid(err) || status.Status().Details != nil && len(status.Status().Details.Causes) > 0 {
				t.Errorf("%s: error %v, want 422 without causes", step.name, err)
			}
		case step.refusal != "":
			if got := messages(t, err); !strings.Contains(got, step.refusal) {
				t.Errorf("%s: the API server says %q, want %q", step.name, got, step.refusal)
			}
		}
	}
}

// A binding in an ended sandbox that never had one may not appear either.
func TestSandboxEndedUnbound(t *testing.T) {
	obj, err := create(t, "Sandbox", "", kubetest.Name("s"),
		`{namespace: default, pool: p, end: {reason: Deleted, at: "2026-01-01T00:00:00Z"}}`)
	if err != nil {
		t.Fatal(err)
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"binding":{"claimID":"c","podName":"p","podUID":"u"}}}`))
	err = kubetest.Client(t).Patch(t.Context(), obj, patch)
	if got := messages(t, err); !strings.Contains(got, "binding cannot change once the sandbox has ended") {
		t.Errorf("the API server says %q", got)
	}
}

func TestSandboxStatus(t *testing.T) {
	c := kubetest.Client(t)
	s := &v1alpha1.Sandbox{
		ObjectMeta: metav1.ObjectMeta{Name: kubetest.Name("s"), Finalizers: []string{v1alpha1.FinalizerSandbox}},
		Spec: v1alpha1.SandboxSpec{
			Namespace: "default", Pool: "p", FirstRequest: true,
			Binding: &v1alpha1.Binding{ClaimID: "c", PodName: "p", PodUID: "u"},
		},
		Status: v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxRunning},
	}
	if err := c.Create(t.Context(), s); err != nil {
		t.Fatalf("creating with the typed client: %v", err)
	}
	if s.Status.Phase != "" || s.Spec.Binding == nil {
		t.Errorf("after the create: phase %q, binding %v; want the status dropped and the binding kept", s.Status.Phase, s.Spec.Binding)
	}
	now := metav1.NewMicroTime(time.Now().Truncate(time.Microsecond))
	s.Status = v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxRunning, FencedAt: &now, Stop: &v1alpha1.StopRecord{StopReason: v1alpha1.StopFailed}}
	if err := c.Status().Update(t.Context(), s); err != nil {
		t.Fatalf("updating the status: %v", err)
	}
	if s.Status.FencedAt == nil || !s.Status.FencedAt.Equal(&now) {
		t.Errorf("fencedAt %v, want %v to the microsecond", s.Status.FencedAt, now)
	}
	s.Status.Phase = "Happy"
	if err := c.Status().Update(t.Context(), s); !apierrors.IsInvalid(err) {
		t.Errorf("unknown phase: error %v, want a refusal", err)
	}
}
