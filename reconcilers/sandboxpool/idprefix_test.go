package sandboxpool

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// A prefix binds other namespaces only if the administrator allowed it for its namespace,
// and no older pool of another namespace that may do so has all of its IDs.
func TestReservation(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	var objects []client.Object
	for name, prefixes := range map[string]string{"red": "job-, red-", "blue": "job-,", "green": "job-pay", "none": "", "empty": ","} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if prefixes != "" {
			ns.Annotations = map[string]string{v1alpha1.AnnotationIDPrefixes: prefixes}
		}
		objects = append(objects, ns)
	}
	pools := map[string]*v1alpha1.SandboxPool{}
	put := func(namespace, name, prefix string, at int64, uid types.UID) {
		p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid, CreationTimestamp: metav1.Unix(at, 0)}}
		if prefix != "" {
			p.Spec.FirstRequest = &v1alpha1.FirstRequest{Access: v1alpha1.AccessAPIKey, IDPrefix: prefix}
		}
		pools[name], objects = p, append(objects, p)
	}
	put("none", "oldest-not-allowed", "job-", 1, "1")
	put("empty", "empty-list", "w", 1, "2")
	put("red", "first", "job-", 2, "3")
	put("blue", "same-age", "job-", 2, "4")
	put("blue", "shorter-not-allowed", "j", 1, "5")
	put("green", "longer-and-younger", "job-pay-", 3, "6")
	put("red", "twin", "job-", 4, "7") // younger than blue's, but of the namespace that has the IDs
	put("red", "of-its-own", "red-x", 1, "8")
	put("red", "without", "", 1, "9")
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithIndex(&v1alpha1.SandboxPool{}, indexPrefix, prefixesOf).Build()
	r := &SandboxPoolReconciler{Client: c}
	for name, want := range map[string]string{
		"oldest-not-allowed": "NotAllowed", "empty-list": "NotAllowed", "first": "Reserved", "same-age": "Taken",
		"shorter-not-allowed": "NotAllowed", "longer-and-younger": "Taken", "twin": "Reserved", "of-its-own": "Reserved", "without": "",
	} {
		got, err := r.reservation(t.Context(), pools[name])
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case got == nil:
			if want != "" {
				t.Errorf("%s: no condition, want %s", name, want)
			}
		case got.Reason != want || (got.Status == metav1.ConditionTrue) != (want == "Reserved"):
			t.Errorf("%s: %s %s, want %s", name, got.Status, got.Reason, want)
		}
		out := outcome{reservation: got}
		pools[name].Status.IDPrefix = "stale"
		fillStatus(pools[name], out.counts, out)
		if bound := pools[name].Status.IDPrefix; (bound == prefixOf(pools[name]) && bound != "") != (want == "Reserved") {
			t.Errorf("%s: the status says that %q binds others", name, bound)
		}
	}
}
