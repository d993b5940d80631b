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
	want, err := access.YAML(complete())
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

// With pool namespaces named, nothing that a process may do in them is granted in
// another.
func TestPoolNamespaces(t *testing.T) {
	bound := map[string][]string{} // by role
	for _, obj := range access.Objects(complete("team-a", "team-b")) {
		switch b := obj.(type) {
		case *rbacv1.ClusterRoleBinding:
			if strings.HasSuffix(b.RoleRef.Name, "-pools") {
				t.Errorf("%s is bound in the whole cluster", b.RoleRef.Name)
			}
		case *rbacv1.RoleBinding:
			bound[b.RoleRef.Name] = append(bound[b.RoleRef.Name], b.Namespace)
		}
	}
	for _, p := range access.Processes() {
		if role := access.AccountName(p) + "-pools"; !slices.Equal(bound[role], []string{"team-a", "team-b"}) {
			t.Errorf("%s is bound in %v", role, bound[role])
		}
	}
}

func TestOptions(t *testing.T) {
	for name, test := range map[string]struct {
		o  access.Options
		ok bool
	}{
		"zero":                     {ok: true},
		"pools":                    {o: access.Options{PoolNamespaces: []string{"team-a"}}, ok: true},
		"one namespace for both":   {o: access.Options{SystemNamespace: "a", KeyNamespace: "a"}},
		"keys in a pool namespace": {o: access.Options{PoolNamespaces: []string{access.DefaultKeyNamespace}}},
		"pools in ours":            {o: access.Options{PoolNamespaces: []string{access.DefaultSystemNamespace}}},
		"pools in kube-system":     {o: access.Options{PoolNamespaces: []string{"kube-system"}}},
		"not a name":               {o: access.Options{PoolNamespaces: []string{"a'] || true || '' in ['"}}},
	} {
		test.o.Complete()
		if err := test.o.Validate(); (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
