package faults

import (
	"context"
	"io"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// refuser answers each request with 404 and remembers what it was.
type refuser struct {
	object, sandbox string
	kind            Kind
}

func (f *refuser) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	f.object = objectOf(r, body)
	f.kind, f.sandbox = classify(r, f.object, body)
	return status(r, http.StatusNotFound, "NotFound", 0), nil
}

// The requests are those that a real client makes.
func TestClassify(t *testing.T) {
	f := &refuser{}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	plural, singular := v1alpha1.GroupVersion.WithResource("sandboxes"), v1alpha1.GroupVersion.WithResource("sandbox")
	mapper.AddSpecific(v1alpha1.GroupVersion.WithKind("Sandbox"), plural, singular, meta.RESTScopeRoot)
	c, err := client.New(&rest.Config{Host: "http://127.0.0.1:1", Transport: f}, client.Options{Scheme: kubetest.Scheme(), Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	pod, sandbox := &corev1.Pod{}, &v1alpha1.Sandbox{}
	pod.Namespace, pod.Name, sandbox.Name = "ns", "p", "a"
	patch := func(o client.Object, ops string) func() error {
		return func() error {
			return c.Patch(context.Background(), o, client.RawPatch(types.JSONPatchType, []byte(ops)))
		}
	}
	const podPath, sandboxPath = "/api/v1/namespaces/ns/pods/p", "/apis/sandlane.dev/v1alpha1/sandboxes/a"
	for name, tc := range map[string]struct {
		call            func() error
		kind            Kind
		object, sandbox string
	}{
		"create": {func() error { return c.Create(t.Context(), sandbox) }, Create, sandboxPath, "a"},
		"bind":   {patch(sandbox, `[{"op":"test","path":"/spec/end","value":null},{"op":"add","path":"/spec/binding","value":{}}]`), Bind, sandboxPath, "a"},
		"unbind": {patch(sandbox, `[{"op":"remove","path":"/spec/binding"}]`), Unbind, sandboxPath, "a"},
		"claim":  {patch(pod, claim), Claim, podPath, "a"},
		"stop":   {patch(pod, `[{"op":"add","path":"/metadata/labels/sandlane.dev~1phase","value":"stopping"}]`), Stop, podPath, ""},
		"run":    {patch(pod, `[{"op":"add","path":"/metadata/labels/sandlane.dev~1phase","value":"running"}]`), "", podPath, ""},
		"read":   {func() error { return c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod) }, "", podPath, ""},
		"list":   {func() error { return c.List(t.Context(), &corev1.PodList{}) }, "", "", ""},
		"other":  {func() error { return c.Create(t.Context(), pod) }, "", "", ""}, // its body is no JSON
	} {
		pod.ResourceVersion, sandbox.ResourceVersion = "", ""
		if err := tc.call(); err == nil {
			t.Errorf("%s: answered", name)
		}
		if f.kind != tc.kind || f.object != tc.object || f.sandbox != tc.sandbox {
			t.Errorf("%s is %+v", name, *f)
		}
	}
}
