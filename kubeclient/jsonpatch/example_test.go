package jsonpatch_test

import (
	"fmt"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/jsonpatch"
)

// A write that ends a pod, if it is still the one that was seen, still idle, and
// without a claim.
func Example() {
	p := jsonpatch.For("0b4e").
		Test(jsonpatch.Phase, v1alpha1.PodIdle).
		Test(jsonpatch.Claim, nil).
		Set(jsonpatch.Phase, v1alpha1.PodStopping)
	fmt.Println(string(p.Bytes()))

	// err := c.Patch(ctx, pod, p.Build())
	var err error
	switch jsonpatch.Judge(err) {
	case jsonpatch.Applied:
		fmt.Println("it stops")
	case jsonpatch.TestFailed, jsonpatch.Gone:
		fmt.Println("it is another pod's state by now: look again")
	case jsonpatch.Ambiguous:
		fmt.Println("it may have been applied: find out")
	}
	// Output:
	// [{"op":"test","path":"/metadata/uid","value":"0b4e"},{"op":"test","path":"/metadata/labels/sandlane.dev~1phase","value":"idle"},{"op":"test","path":"/metadata/annotations/sandlane.dev~1claim","value":null},{"op":"add","path":"/metadata/labels/sandlane.dev~1phase","value":"stopping"}]
	// it stops
}
