package gateway

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sandlane/sandlane/activation"
	"github.com/sandlane/sandlane/extproc"
)

// Each error that activation documents reaches extproc as one that it answers
// on purpose; a client is told to retry only where that can help.
func TestActivationErrorsAreTranslated(t *testing.T) {
	for from, want := range map[error]error{
		activation.ErrEnded:        extproc.ErrNotFound,
		activation.ErrExists:       extproc.ErrExists,
		activation.ErrOtherTenant:  extproc.ErrExists,
		activation.ErrPoolNotFound: extproc.ErrPoolNotFound,
		activation.ErrParkingFull:  extproc.ErrParkingFull,
		activation.ErrNoCapacity:   extproc.ErrNoCapacity,
		activation.ErrShutdown:     extproc.ErrDraining,
		activation.ErrNotReady:     context.DeadlineExceeded,
	} {
		got := translate(fmt.Errorf("activate sandbox x: %w", &activation.RetryError{Err: from, After: 7}))
		if !errors.Is(got, want) {
			t.Errorf("%v became %v, want %v", from, got, want)
		}
		var retry interface{ RetryAfter() time.Duration }
		if !errors.As(got, &retry) || retry.RetryAfter() != 7 {
			t.Errorf("%v lost when to retry", from)
		}
	}
	if translate(nil) != nil {
		t.Error("success became an error")
	}
}
