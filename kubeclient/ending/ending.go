// Package ending writes the one write that ends a sandbox: spec.end.
//
// Everyone who ends a sandbox calls it: the REST API, the CLI, the gateway and
// the reconcilers. It is not the release: carrying an end out (stopping the
// pod, the fence, the record) is the job of reconcilers/sandbox alone.
//
// An end is final. The CRD refuses to change it, and the write here tests that
// there is none yet, so of two ends at once one wins and the other is told
// that all is well. It is safe for concurrent use.
package ending

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// ErrMoved says that the sandbox is no longer what the caller judged: its UID,
// its claim or its spec is another one. It has not been ended; look again.
var ErrMoved = errors.New("the sandbox is no longer the one that was to be ended")

// maxMessage is the CRD's limit for spec.end.message, in characters.
const maxMessage = 1024

// Test is something that must hold for the end to be written.
type Test func(*[]operation)

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// OfClaim asks that the sandbox is still bound by this claim. Whoever ends a
// sandbox because of what its pod does or did passes it.
func OfClaim(claimID string) Test {
	return func(ops *[]operation) {
		*ops = append(*ops, operation{"test", "/spec/binding/claimID", claimID})
	}
}

// Unbound asks that the sandbox still has no pod. Whoever ends a sandbox because it
// has none passes it.
func Unbound() Test {
	return func(ops *[]operation) {
		*ops = append(*ops, operation{"test", "/spec/binding", nil})
	}
}

// OfUID asks that the sandbox is still this object, not a later one of the
// same ID.
func OfUID(uid types.UID) Test {
	return func(ops *[]operation) {
		*ops = append(*ops, operation{"test", "/metadata/uid", string(uid)})
	}
}

// OfGeneration asks that the spec is still the one that was read. Whoever ends a
// sandbox because of what its spec says passes it: what was read may be old, and
// somebody may have been told since that it says otherwise.
func OfGeneration(generation int64) Test {
	return func(ops *[]operation) {
		*ops = append(*ops, operation{"test", "/metadata/generation", generation})
	}
}

// OfRelease asks that the idle release with this token has not been called off.
func OfRelease(token string) Test {
	return func(ops *[]operation) {
		*ops = append(*ops, operation{"test", "/spec/release/token", token})
	}
}

// EndSandbox writes spec.end, once: nil also means that the sandbox had already
// ended. The message is one sentence for people; what exceeds 1024 characters
// is cut. Errors: ErrMoved if a test failed, otherwise the API server's
// (NotFound for an ID without a record), wrapped.
func EndSandbox(ctx context.Context, c client.Client, id string, reason v1alpha1.EndReason, message string, tests ...Test) error {
	ops := make([]operation, 0, len(tests)+2)
	for _, t := range tests {
		t(&ops)
	}
	ops = append(ops,
		operation{"test", "/spec/end", nil},
		operation{"add", "/spec/end", v1alpha1.End{Reason: reason, Message: cut(message), At: metav1.NewTime(time.Now())}})
	raw, err := json.Marshal(ops)
	if err != nil {
		return fmt.Errorf("ending sandbox %s: %w", id, err)
	}
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: id}}
	err = c.Patch(ctx, s, client.RawPatch(types.JSONPatchType, raw))
	if err == nil {
		return nil
	}
	if !testFailed(err) {
		return fmt.Errorf("ending sandbox %s: %w", id, err)
	}
	// The patch answers alike for an end that is there and for a test that
	// failed. A dry run of the same tests without the end would race; reading
	// cannot, since an end is final. The read must not come from a cache: ask
	// with a patch that changes nothing.
	probe, err := json.Marshal([]operation{{"test", "/spec/end", nil}})
	if err != nil {
		return fmt.Errorf("ending sandbox %s: %w", id, err)
	}
	switch err := c.Patch(ctx, s, client.RawPatch(types.JSONPatchType, probe)); {
	case err == nil:
		return fmt.Errorf("ending sandbox %s: %w", id, ErrMoved)
	case testFailed(err):
		return nil
	default:
		return fmt.Errorf("ending sandbox %s: %w", id, err)
	}
}

// testFailed tells a JSON Patch test that failed from an invalid object: both
// are 422, only the latter names its causes.
func testFailed(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		return false
	}
	d := status.Status().Details
	return d == nil || len(d.Causes) == 0
}

func cut(s string) string {
	if utf8.RuneCountInString(s) <= maxMessage {
		return s
	}
	return string([]rune(s)[:maxMessage-1]) + "…"
}
