package writes

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// maxMessage is the CRD's limit for spec.end.message, in characters.
const maxMessage = 1024

// Test is something that must hold for the end to be written.
type Test func(Patch) Patch

func holds(path string, value any) Test {
	return func(p Patch) Patch { return p.Test(path, value) }
}

// OfClaim asks that the sandbox is still bound by this claim. Pass it to end a sandbox
// because of what its pod does or did.
func OfClaim(claimID string) Test { return holds("/spec/binding/claimID", claimID) }

// Unbound asks that the sandbox still has no pod. Pass it to end a sandbox because it
// has none.
func Unbound() Test { return holds("/spec/binding", nil) }

// OfUID asks that the sandbox is still this object, not a later one of the
// same ID.
func OfUID(uid types.UID) Test { return holds("/metadata/uid", string(uid)) }

// OfGeneration asks that the spec is still the one that was read. Pass it to end a
// sandbox because of what its spec says: what was read may be old, and a client may have
// been told since that the spec says otherwise.
func OfGeneration(generation int64) Test { return holds("/metadata/generation", generation) }

// NotRestoring asks that the sandbox's files are not still to be restored. Pass it to end a
// sandbox because of what it did, or did not do: such a one has not run since its pause.
func NotRestoring() Test { return holds("/spec/restore", nil) }

// OfRelease asks that the idle release with this token has not been called off.
func OfRelease(token string) Test { return holds("/spec/release/token", token) }

// EndSandbox writes spec.end, once: nil also means that the sandbox had already
// ended. The message is one sentence for people; what exceeds 1024 characters
// is cut. Errors: ErrStale if a test failed, otherwise the API server's
// (NotFound for an ID without a record), wrapped.
func EndSandbox(ctx context.Context, c client.Client, id string, reason v1alpha1.EndReason, message string, tests ...Test) error {
	p := Patch{}
	for _, t := range tests {
		p = t(p)
	}
	p = p.Test("/spec/end", nil).
		Set("/spec/end", v1alpha1.End{Reason: reason, Message: cut(message), At: metav1.NewTime(time.Now())})
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: id}}
	err := c.Patch(ctx, s, p.Build())
	if err == nil {
		return nil
	}
	if !Refused(err) {
		return fmt.Errorf("ending sandbox %s: %w", id, err)
	}
	// The patch answers alike for an end that is there and for a test that
	// failed. A dry run of the same tests without the end would race; reading
	// cannot, since an end is final. The read must not come from a cache: ask
	// with a patch that changes nothing.
	err = c.Patch(ctx, s, Patch{}.Test("/spec/end", nil).Build())
	switch {
	case err == nil:
		return fmt.Errorf("ending sandbox %s: %w", id, ErrStale)
	case Refused(err):
		return nil
	default:
		return fmt.Errorf("ending sandbox %s: %w", id, err)
	}
}

func cut(s string) string {
	if utf8.RuneCountInString(s) <= maxMessage {
		return s
	}
	return string([]rune(s)[:maxMessage-1]) + "…"
}
