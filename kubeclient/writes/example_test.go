package writes_test

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// refused is what an API server answers if a test of a patch failed: 422 without causes.
var refused = apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch",
	schema.GroupResource{Resource: "pods"}, "sandbox-1", "the server rejected our request", 0, false)

// A write that ends a pod, if it is still the one that was seen, still idle, and
// without a claim.
func Example() {
	p := writes.For("0b4e").
		Test(writes.Phase, v1alpha1.PodIdle).
		Test(writes.Claim, nil).
		Set(writes.Phase, v1alpha1.PodStopping)
	fmt.Println(string(p.Bytes()))

	// err := c.Patch(ctx, pod, p.Build())
	err := refused
	switch writes.Judge(err) {
	case writes.Applied:
		fmt.Println("it stops")
	case writes.Invalid, writes.Forbidden:
		fmt.Println("it is of no use to send it again")
	case writes.TestFailed, writes.Gone:
		fmt.Println("it is another pod's state by now: look again")
	case writes.Ambiguous:
		fmt.Println("it may have been applied: find out")
	}
	// Output:
	// [{"op":"test","path":"/metadata/uid","value":"0b4e"},{"op":"test","path":"/metadata/labels/sandlane.dev~1phase","value":"idle"},{"op":"test","path":"/metadata/annotations/sandlane.dev~1claim","value":null},{"op":"add","path":"/metadata/labels/sandlane.dev~1phase","value":"stopping"}]
	// it is another pod's state by now: look again
}
