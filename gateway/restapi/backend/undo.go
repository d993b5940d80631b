package backend

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

const (
	// undoPatience is how long a failed create waits for its undoing.
	undoPatience = 5 * time.Second
	// undoTimeout is how long the undoing goes on after that. What is left then
	// ends at its end time.
	undoTimeout = 2 * time.Minute
	// undoTry bounds one write of it; undoMin and undoMax the waits between tries.
	undoTry          = 5 * time.Second
	undoMin, undoMax = 50 * time.Millisecond, 2 * time.Second
)

// undos are the creates that are being undone, which may outlast their request.
type undos struct {
	ctx     context.Context // ends them all
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// WaitUndone returns when every failed create has been undone or given up. It is
// called when no create is under way any more.
func (x *Backend) WaitUndone() { x.undos.running.Wait() }

// StopUndoing gives up the creates that are being undone: what they may have made
// is left to its end time. It may be called more than once.
func (x *Backend) StopUndoing() { x.undos.cancel() }

// undo ends what a create may have made, and reports whether that is done. It goes
// on by itself if it takes long.
func (x *Backend) undo(n restapi.NewSandbox) bool {
	x.cache.Invalidate(n.ID)
	done := make(chan error, 1)
	x.undos.running.Go(func() {
		ctx, cancel := context.WithTimeout(x.undos.ctx, undoTimeout)
		defer cancel()
		err := x.ensureEnded(ctx, n)
		if err != nil {
			x.log.Warn("a sandbox whose create failed may run until its end time", "sandbox", n.ID, "error", err)
		}
		done <- err
	})
	late := time.NewTimer(undoPatience)
	defer late.Stop()
	select {
	case err := <-done:
		return err == nil
	case <-late.C:
		return false
	}
}

// ensureEnded makes sure that there is no sandbox of this ID but an ended one, now and later: a
// create whose answer was lost may still be on its way, so where there is none an ended
// one is put in its place.
func (x *Backend) ensureEnded(ctx context.Context, n restapi.NewSandbox) error {
	for delays := backoff.Doubling(undoMin, undoMax); ; {
		err := x.buryOnce(ctx, n)
		if err == nil || refusedForGood(err) || !backoff.Sleep(ctx, delays.Step()) {
			return err
		}
	}
}

func (x *Backend) buryOnce(ctx context.Context, n restapi.NewSandbox) error {
	ctx, cancel := context.WithTimeout(ctx, undoTry)
	defer cancel()
	const message = "its create failed or was given up"
	err := writes.EndSandbox(ctx, x.api, n.ID, v1alpha1.EndCanceled, message)
	if !apierrors.IsNotFound(err) {
		return err
	}
	s := &v1alpha1.Sandbox{}
	s.Name, s.Finalizers = n.ID, []string{v1alpha1.FinalizerSandbox}
	s.Spec.Namespace, s.Spec.Env, s.Spec.Pool, s.Spec.Team = n.Namespace, n.SandboxEnv, n.Pool, n.Team
	s.Spec.End = &v1alpha1.End{Reason: v1alpha1.EndCanceled, Message: message, At: metav1.Now()}
	return x.api.Create(ctx, s)
}
