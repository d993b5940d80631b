package crds_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// named is a pool whose first requests may connect to a name.
func named(name string) string {
	return `{templateRef: {name: a}, egress: ByName, firstRequest: {access: Public, egress: {allowNames: [` + name + `]}}}`
}

// egress/watch has a test that egress processes take what these are.
func TestPoolNames(t *testing.T) {
	ns := kubetest.Namespace(t)
	for _, name := range []string{"api.example.com", `"*.example.com"`, `"*"`, "localhost", "_a.b_c.example", "xn--80ak6aa92e.com", "1.2.3.a4", strings.Repeat("a", 63) + ".example"} {
		if _, err := create(t, "SandboxPool", ns, kubetest.Name("p"), named(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := create(t, "SandboxPool", ns, kubetest.Name("p"), `{templateRef: {name: a}, egress: ByName, firstRequest: {access: Public, egress: {}}}`); err != nil {
		t.Errorf("no names: %v", err)
	}
}

func TestPoolRefusals(t *testing.T) {
	ns := kubetest.Namespace(t)
	const ref = `templateRef: {name: a}`
	for _, tc := range []struct{ name, spec, want string }{
		{"no template", `{replicas: 1}`, "set exactly one of template and templateRef"},
		{"both templates", `{` + ref + `, template: {template: {spec: ` + container + `}}}`, "set exactly one of template and templateRef"},
		{"negative replicas", `{` + ref + `, replicas: -1}`, "greater than or equal to 0"},
		{"too many replicas", `{` + ref + `, replicas: 10001}`, "less than or equal to 10000"},
		{"negative maxPods", `{` + ref + `, maxPods: -1}`, "greater than or equal to 0"},
		{"image policy", `{` + ref + `, podCreationImagePolicy: Never}`, `"IdleImage", "PoolDefaultImage"`},
		{"recycle policy", `{` + ref + `, recyclePolicy: Never}`, `"Replace", "InPlace"`},
		{"first-request access", `{` + ref + `, firstRequest: {access: Anybody}}`, `"APIKey", "Public"`},
		{"first request without access", `{` + ref + `, firstRequest: {}}`, "firstRequest.access: Required value"},
		{"first-request reach", `{` + ref + `, firstRequest: {access: APIKey, reach: Anybody}}`, `"Key", "Token", "Public"`},
		{"anybody makes what not everybody reaches", `{` + ref + `, firstRequest: {access: Public, reach: Key}}`, "reach must be Public too"},
		{"first-request prefix", `{` + ref + `, firstRequest: {access: APIKey, idPrefix: A_}}`, "firstRequest.idPrefix"},
		{"names without egress by name", `{` + ref + `, firstRequest: {access: Public, egress: {}}}`, "firstRequest.egress needs egress: ByName"},
		{"an address among names", named(`10.0.0.1`), "firstRequest.egress.allowNames[0]"},
		{"a number among names", named(`"167772161"`), "firstRequest.egress.allowNames[0]"},
		{"a hexadecimal number among names", named(`"0x7f.0x1"`), "firstRequest.egress.allowNames[0]"},
		{"a block among names", named(`10.0.0.0/8`), "firstRequest.egress.allowNames[0]"},
		{"a URL among names", named(`"https://api.example.com"`), "firstRequest.egress.allowNames[0]"},
		{"a port among names", named(`"api.example.com:443"`), "firstRequest.egress.allowNames[0]"},
		{"a star within a name", named(`"api.*.com"`), "firstRequest.egress.allowNames[0]"},
		{"capitals in a name", named(`Api.example.com`), "firstRequest.egress.allowNames[0]"},
		{"an empty label", named(`a..com`), "firstRequest.egress.allowNames[0]"},
		{"a hyphen at a label's end", named(`a-.com`), "firstRequest.egress.allowNames[0]"},
		{"a long label", named(strings.Repeat("a", 64) + `.com`), "firstRequest.egress.allowNames[0]"},
		{"word as idle timeout", `{` + ref + `, idleTimeout: never}`, "idleTimeout"},
		{"number as idle timeout", `{` + ref + `, idleTimeout: 5}`, "idleTimeout"},
		{"negative startup timeout", `{` + ref + `, startupTimeout: -5s}`, "startupTimeout"},
		{"timeout beyond what Go can hold", `{` + ref + `, idleTimeout: 99999999h}`, "idleTimeout"},
		{"no pause mode", `{` + ref + `, pause: {modes: []}}`, "pause.modes"},
		{"a pause mode that there is not", `{` + ref + `, pause: {modes: [Sleep]}}`, "pause.modes"},
		{"negative maxPaused", `{` + ref + `, pause: {maxPaused: -1}}`, "greater than or equal to 0"},
		{"word as pausedFor", `{` + ref + `, pause: {pausedFor: never}}`, "pausedFor"},
		{"auto-resume of what is not paused", `{` + ref + `, pause: {autoResume: Always}}`, "autoResume needs onTimeout: Pause"},
		{"template name", `{templateRef: {name: ""}}`, "templateRef.name"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := create(t, "SandboxPool", ns, kubetest.Name("p"), tc.spec)
			if got := messages(t, err); !strings.Contains(got, tc.want) {
				t.Errorf("the API server says %q, want %q", got, tc.want)
			}
		})
	}
	t.Run("long name", func(t *testing.T) {
		_, err := create(t, "SandboxPool", ns, strings.Repeat("a", 64), `{`+ref+`}`)
		if got := messages(t, err); !strings.Contains(got, "at most 63 characters") {
			t.Errorf("the API server says %q", got)
		}
	})
}

func TestPoolDefaults(t *testing.T) {
	c, ns := kubetest.Client(t), kubetest.Namespace(t)
	if _, err := create(t, "SandboxPool", ns, "p", `{templateRef: {name: a}, idleTimeout: 1h30m, startupTimeout: 0s}`); err != nil {
		t.Fatal(err)
	}
	var pool v1alpha1.SandboxPool
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: "p"}, &pool); err != nil {
		t.Fatal(err)
	}
	if s := pool.Spec; s.Replicas != 1 || s.MaxPods != 0 || s.PodCreationImagePolicy != v1alpha1.ImagePolicyPoolDefault ||
		s.RecyclePolicy != v1alpha1.RecycleReplace || s.FirstRequest != nil {
		t.Errorf("defaults are %+v", s)
	}
	// The typed client writes what the schema accepts, and the scale
	// subresource is there.
	pool.Spec.Replicas = 0
	if err := c.Update(t.Context(), &pool); err != nil {
		t.Fatalf("updating a pool with the typed client: %v", err)
	}
	pool.Status = v1alpha1.SandboxPoolStatus{Idle: 3, Phase: v1alpha1.PoolReady, Selector: "a=b"}
	if err := c.Status().Update(t.Context(), &pool); err != nil {
		t.Fatalf("updating a pool's status: %v", err)
	}
	pool.Status.Phase = "Happy"
	if err := c.Status().Update(t.Context(), &pool); !apierrors.IsInvalid(err) {
		t.Errorf("unknown phase: error %v, want a refusal", err)
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":20000}}`))
	if err := c.Patch(t.Context(), &pool, patch); !apierrors.IsInvalid(err) {
		t.Errorf("20000 replicas: error %v, want a refusal", err)
	}
}
