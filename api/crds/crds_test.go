package crds_test

import (
	"os"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/sandlane/sandlane/api/crds"
	"github.com/sandlane/sandlane/test/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

func TestAll(t *testing.T) {
	all, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, crd := range all {
		got[crd.Spec.Names.Kind] = string(crd.Spec.Scope) + " " + crd.Spec.Names.ShortNames[0]
		if v := crd.Spec.Versions; len(v) != 1 || !v[0].Served || !v[0].Storage {
			t.Errorf("%s: want one version, served and stored", crd.Name)
		}
	}
	want := map[string]string{"Checkpoint": "Namespaced cp", "Sandbox": "Cluster sbx", "SandboxEnv": "Namespaced sbe", "SandboxPool": "Namespaced sbp", "SandboxSecret": "Namespaced sbsec", "SandboxTemplate": "Cluster sbt", "TemplateBuild": "Namespaced tb"}
	for kind, w := range want {
		if got[kind] != w {
			t.Errorf("%s: %q, want %q", kind, got[kind], w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("kinds %v, want %v", got, want)
	}
}

// create makes a kind with the given spec, in YAML, under name, and returns what
// the API server stored. Empty namespace means cluster-scoped.
func create(t *testing.T, kind, namespace, name, spec string) (*unstructured.Unstructured, error) {
	t.Helper()
	fields := map[string]any{}
	if err := yaml.Unmarshal([]byte(spec), &fields); err != nil {
		t.Fatalf("spec %q: %v", spec, err)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "sandlane.dev/v1alpha1", "kind": kind, "spec": fields}}
	obj.SetNamespace(namespace)
	obj.SetName(name)
	return obj, kubetest.Client(t).Create(t.Context(), obj)
}

// messages returns what the API server said against an object, one line per
// cause; it ends the test if err is not such a refusal.
func messages(t *testing.T, err error) string {
	t.Helper()
	status, ok := err.(apierrors.APIStatus)
	if !ok || !apierrors.IsInvalid(err) {
		t.Fatalf("error %v, want a refusal with status 422", err)
	}
	var lines string
	if details := status.Status().Details; details != nil {
		for _, cause := range details.Causes {
			lines += cause.Field + ": " + cause.Message + "\n"
		}
	}
	return lines
}
