package activation

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/routing"
)

const (
	// callTimeout bounds one call to the API server.
	callTimeout = 5 * time.Second
	// retryMin and retryMax bound the delays between tries, unless the API server asks for
	// another one.
	retryMin, retryMax = 50 * time.Millisecond, time.Second
	// rereadMin is the first delay before a sandbox whose route the cache refused is read
	// again.
	rereadMin = 2 * time.Millisecond
)

// read reads an object from the API server, and tries again while that does not answer;
// errGone if there is no such object.
func (act *activation) read(ctx context.Context, key client.ObjectKey, into client.Object) error {
	for delays := backoff.Doubling(retryMin, retryMax); ; {
		err := act.readOnce(ctx, key, into)
		switch {
		case err == nil:
			return nil
		case apierrors.IsNotFound(err):
			return errGone
		case writes.Judge(err).Final():
			return fmt.Errorf("read %s: %w", key, finalError(err))
		case !backoff.Sleep(ctx, backoff.Asked(err, delays.Step())):
			return unavailable(err)
		}
	}
}

func (act *activation) readOnce(ctx context.Context, key client.ObjectKey, into client.Object) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return act.a.o.Client.Get(ctx, key, into)
}

// conditionFailed reports whether a condition of a write failed, so that the object must be
// read again.
func conditionFailed(v writes.Verdict) bool {
	return v == writes.TestFailed || v == writes.Conflict || v == writes.Gone
}

// finalError returns the package's error for a write or read that would fail again.
func finalError(err error) error {
	if writes.Judge(err) == writes.Forbidden {
		return forbidden(err)
	}
	return invalid(err)
}

func unavailable(err error) error { return retry(fmt.Errorf("%w: %w", routing.ErrUnavailable, err)) }
