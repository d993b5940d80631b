package gateway

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// A name that is free again may be another tenant's next. A caller with a token of the
// sandbox that had the name before has none of the one that has it now, at any gateway.
func TestTokensOfAnEarlierSandboxOfTheName(t *testing.T) {
	w := newWorld(t)
	one, two := w.gateway(), w.gateway()
	id := kubetest.Name("worker")
	told := []string{}
	for range 2 {
		d := w.ready()
		r := w.request(id, "base")
		r.New = true
		kubetest.Eventually(t, "the name to be free and claimed", func() error {
			return one.activator.Activate(t.Context(), r)
		})
		s := w.sandbox(id)
		w.follows(two, id, d, 2)
		for i, call := range d.calls() {
			if call.Token != w.tokens.Envd(id, s.UID) {
				t.Errorf("gateway %d gave it the token %s", i, call.Token)
			}
		}
		told = append(told, w.tokens.Traffic(id, s.UID), d.calls()[0].Token)
		if a := one.index.Resolve(id); a.UID != s.UID {
			t.Errorf("the index has the UID %q, want %q", a.UID, s.UID)
		}
		w.forget(s)
	}
	if told[0] == told[2] || told[1] == told[3] {
		t.Errorf("both sandboxes have the tokens %v", told)
	}
}

// forget deletes a sandbox and its pod, as the controller does in the end.
func (w *world) forget(s *v1alpha1.Sandbox) {
	w.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: s.Spec.Binding.PodName}}
	if err := w.c.Delete(w.t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		w.t.Fatal(err)
	}
	if err := w.c.Delete(w.t.Context(), s); err != nil {
		w.t.Fatal(err)
	}
	err := w.c.Patch(w.t.Context(), s, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
}
