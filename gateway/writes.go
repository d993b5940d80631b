package gateway

import (
	"context"
	"encoding/json"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// errChanged says that a sandbox is not as it was when it was read.
var errChanged = errors.New("the sandbox has changed meanwhile")

// operation is one step of a JSON Patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// writeEnd sets a sandbox's end time and updates s. It tests that the spec is as
// it was read: the generation counts its changes, whatever form a time has.
func (x *sandboxes) writeEnd(ctx context.Context, s *v1alpha1.Sandbox, to metav1.Time) error {
	ops := []operation{
		{"test", "/metadata/uid", string(s.UID)},
		{"test", "/metadata/generation", s.Generation},
		{"test", "/metadata/deletionTimestamp", nil},
		{"test", "/spec/end", nil},
	}
	if s.Spec.Timeouts == (v1alpha1.SandboxTimeouts{}) { // there may be no object to add to
		ops = append(ops, operation{"add", "/spec/timeouts", v1alpha1.SandboxTimeouts{EndAt: &to}})
	} else {
		ops = append(ops, operation{"add", "/spec/timeouts/endAt", to})
	}
	raw, err := json.Marshal(ops)
	if err != nil {
		return err
	}
	switch err := x.api.Patch(ctx, s, client.RawPatch(types.JSONPatchType, raw)); {
	case testFailed(err), apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return errChanged
	default:
		return err
	}
}

// testFailed tells a JSON Patch test that failed from an invalid object: both are
// 422, only the latter names its causes.
func testFailed(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		return false
	}
	d := status.Status().Details
	return d == nil || len(d.Causes) == 0
}
