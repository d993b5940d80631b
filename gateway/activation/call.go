package activation

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/backoff"
	"github.com/sandlane/sandlane/kubeclient/jsonpatch"
)

const (
	// callTimeout bounds one call to the API server.
	callTimeout = 5 * time.Second
	// retryMin and retryMax bound the waits between tries where the API server
	// named none.
	retryMin, retryMax = 50 * time.Millisecond, time.Second
	// rereadMin is the first wait before a sandbox whose route was refused is read again.
	rereadMin = 2 * time.Millisecond
)

// read reads an object live, and tries again while the API server is away.
// errGone if there is none.
func (act *activation) read(ctx context.Context, key client.ObjectKey, into client.Object) error {
	for pauses := backoff.Doubling(retryMin, retryMax); ; {
		err := act.readOnce(ctx, key, into)
		switch {
		case err == nil:
			return nil
		case apierrors.IsNotFound(err):
			return errGone
		case jsonpatch.Judge(err).Final():
			return fmt.Errorf("read %s: %w", key, final(err))
		case !backoff.Sleep(ctx, backoff.Asked(err, pauses.Step())):
			return unavailable(err)
		}
	}
}

func (act *activation) readOnce(ctx context.Context, key client.ObjectKey, into client.Object) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return act.a.o.Client.Get(ctx, key, into)
}

// stale says that a condition of a write failed: look at the object.
func stale(v jsonpatch.Verdict) bool {
	return v == jsonpatch.TestFailed || v == jsonpatch.Conflict || v == jsonpatch.Gone
}

// final wraps an error whose verdict is final.
func final(err error) error {
	if jsonpatch.Judge(err) == jsonpatch.Forbidden {
		return fmt.Errorf("%w: %w", ErrForbidden, err)
	}
	return fmt.Errorf("%w: %w", ErrInvalid, err)
}

func unavailable(err error) error { return retry(fmt.Errorf("%w: %w", ErrUnavailable, err)) }
