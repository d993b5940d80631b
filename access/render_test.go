package access_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/sandlane/sandlane/access"
)

// What the documentation says is what the list says.
func TestDocumentedRights(t *testing.T) {
	want, err := access.YAML(access.Objects(complete()))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../docs/rights.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("docs/rights.yaml is not what the list renders to: run `make generate`")
	}
	page, err := os.ReadFile("../docs/rights.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != access.Markdown() {
		t.Error("docs/rights.md is not what the list renders to: run `make generate`")
	}
}

// What may be read in pool namespaces alone is bound in no other.
func TestReadsAreBoundByNamespace(t *testing.T) {
	for _, obj := range access.Objects(complete()) {
		if b, ok := obj.(*rbacv1.ClusterRoleBinding); ok && strings.HasSuffix(b.RoleRef.Name, "-pools") {
			t.Errorf("%s is bound in the whole cluster", b.RoleRef.Name)
		}
	}
	var bound []string
	for _, obj := range access.Bindings(complete(), "team-a") {
		if b, ok := obj.(*rbacv1.RoleBinding); !ok || b.Namespace != "team-a" {
			t.Errorf("%T in %q", obj, obj.GetNamespace())
		}
		bound = append(bound, obj.GetName())
	}
	if want := []string{"sandlane-gateway-pools", "sandlane-controller-pools"}; !slices.Equal(bound, want) {
		t.Errorf("bound %v, want %v", bound, want)
	}
}

func TestOptions(t *testing.T) {
	for name, test := range map[string]struct {
		o  access.Options
		ok bool
	}{
		"zero":                   {ok: true},
		"one namespace for both": {o: access.Options{SystemNamespace: "a", KeyNamespace: "a"}},
		"not a name":             {o: access.Options{KeyNamespace: "a'] || true || '' in ['"}},
	} {
		test.o.Complete()
		if err := test.o.Validate(); (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
