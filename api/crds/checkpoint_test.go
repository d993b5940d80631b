package crds_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/test/kubetest"
)

const checkpointSpec = `{sandboxID: s1, sandboxUID: u, claimID: c, contents: [Filesystem], cause: Snapshot, names: [first]}`

func TestCheckpointRefusals(t *testing.T) {
	for _, tc := range []struct{ name, spec, want string }{
		{"contents", strings.Replace(checkpointSpec, "Filesystem", "Memory", 1), "Unsupported value"},
		{"no contents", strings.Replace(checkpointSpec, "[Filesystem]", "[]", 1), "should have at least 1 items"},
		{"cause", strings.Replace(checkpointSpec, "cause: Snapshot", "cause: Whim", 1), "Unsupported value"},
		{"sandbox ID", strings.Replace(checkpointSpec, "s1", "../s1", 1), "should match"},
		{"no claim", strings.Replace(checkpointSpec, "claimID: c,", `claimID: "",`, 1), "claimID"},
		{"names twice", strings.Replace(checkpointSpec, "[first]", "[first, first]", 1), "Duplicate value"},
		{"kept for no time", strings.Replace(checkpointSpec, "cause", "keepFor: 0s, cause", 1), "not a duration"},
	} {
		_, err := create(t, "Checkpoint", "default", kubetest.Name("c"), tc.spec)
		if got := messages(t, err); !strings.Contains(got, tc.want) {
			t.Errorf("%s: the API server says %q, want %q", tc.name, got, tc.want)
		}
	}
	_, err := create(t, "Checkpoint", "default", kubetest.Name("c.d"), checkpointSpec)
	if got := messages(t, err); !strings.Contains(got, "a checkpoint's name has 1 to 57") {
		t.Errorf("a name with a dot: the API server says %q", got)
	}
}

// The spec says what was read, and stays; a success says where the data is.
func TestCheckpointChanges(t *testing.T) {
	obj, err := create(t, "Checkpoint", "default", kubetest.Name("c"), checkpointSpec)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ name, subresource, patch, refusal string }{
		{"another claim", "", `{"spec":{"claimID":"c2"}}`, "immutable"},
		{"another name", "", `{"spec":{"names":["second"]}}`, "immutable"},
		{"a time to keep it", "", `{"spec":{"keepFor":"1h"}}`, "immutable"},
		{"an owner", "", `{"metadata":{"annotations":{"sandlane.dev/owner":"k1"}}}`, ""},
		{"success without data", "status", `{"status":{"phase":"Succeeded"}}`, "has checkpointID, digest and pool"},
		{"creating", "status", `{"status":{"phase":"Creating"}}`, ""},
		{"success", "status", `{"status":{"phase":"Succeeded","checkpointID":"c","digest":"d","pool":"p","bytes":7}}`, ""},
		{"no data any more", "status", `{"status":{"checkpointID":null}}`, "has checkpointID, digest and pool"},
	} {
		patch := client.RawPatch(types.MergePatchType, []byte(step.patch))
		var err error
		if step.subresource == "" {
			err = kubetest.Client(t).Patch(t.Context(), obj, patch)
		} else {
			err = kubetest.Client(t).Status().Patch(t.Context(), obj, patch)
		}
		if step.refusal == "" && err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		if step.refusal != "" && (!apierrors.IsInvalid(err) || !strings.Contains(messages(t, err), step.refusal)) {
			t.Errorf("%s: %v, want %q", step.name, err, step.refusal)
		}
	}
}
