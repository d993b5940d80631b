package backend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/gateway/index"
	"github.com/sandlane/sandlane/gateway/pause"
	"github.com/sandlane/sandlane/gateway/pause/files"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/routing"
)

// pauseTries bounds how often a pause or a resume starts over because the sandbox
// changed.
const pauseTries = 5

// Pause implements restapi.Sandboxes.
func (x *Backend) Pause(ctx context.Context, namespace, id string, memory bool) error {
	mode := v1alpha1.PauseFreeze
	if !memory {
		mode = v1alpha1.PauseHibernate
	}
	for range pauseTries {
		s, err := x.get(ctx, namespace, id)
		if err != nil {
			return err
		}
		err = x.pauseOnce(ctx, s, mode)
		switch {
		case errors.Is(err, writes.ErrStale):
			continue
		case errors.Is(err, pause.ErrNotRunning):
			return fmt.Errorf("%w: %w", restapi.ErrNotRunning, err)
		case errors.Is(err, pause.ErrUnsupported):
			return fmt.Errorf("%w: %w", restapi.Invalidf("its pool's pods cannot be paused: they need sandboxd alone, as their first process, and no liveness probe"), err)
		case errors.Is(err, pause.ErrUnanswered):
			return fmt.Errorf("%w: %w", restapi.ErrUnanswered, err)
		}
		return err
	}
	return fmt.Errorf("pause sandbox %s: %w", id, writes.ErrStale)
}

// pauseOnce pauses a sandbox, as it was read, if that may be. What its pool allows does not
// count for one that is paused already: clients take ErrNotRunning for "done before".
func (x *Backend) pauseOnce(ctx context.Context, s *v1alpha1.Sandbox, mode v1alpha1.PauseMode) error {
	if s.Spec.Paused || s.Spec.Restore != nil {
		return x.pauser.Pause(ctx, s, mode) // refuses it, and counts that
	}
	giveBack, err := x.mayPause(ctx, s, mode)
	if err != nil {
		return err
	}
	if mode == v1alpha1.PauseHibernate {
		end, err := x.snapshots.ReserveForPause(ctx, s)
		if err != nil {
			return err
		}
		defer end()
	}
	if err := x.pauser.Pause(ctx, s, mode); err != nil {
		giveBack()
		return err
	}
	return nil
}

// mayPause says whether this gateway and the pool of a sandbox that runs let it be paused. If so,
// the sandbox counts as paused unless the caller calls giveBack.
func (x *Backend) mayPause(ctx context.Context, s *v1alpha1.Sandbox, mode v1alpha1.PauseMode) (giveBack func(), err error) {
	pool, _ := x.index.Pool(s.Spec.Namespace, s.Spec.Pool)
	switch {
	case mode == v1alpha1.PauseHibernate && x.snapshots == nil:
		return nil, restapi.ErrNoStore
	case v1alpha1.AllowsPause(pool.Spec, mode):
	case mode == v1alpha1.PauseHibernate:
		return nil, restapi.Invalidf("memory: its pool does not let sandboxes hibernate (spec.pause.modes); leave it out or set it to true")
	default:
		return nil, restapi.Invalidf("its pool does not let sandboxes be frozen")
	}
	most, limited := v1alpha1.MaxPaused(pool.Spec)
	if !limited || mode == v1alpha1.PauseHibernate { // one that hibernates gives its pod up
		return func() {}, nil
	}
	switch ok, err := x.rooms.Take(ctx, watch{x.index}, s, most); {
	case err != nil:
		return nil, err
	case !ok:
		return nil, fmt.Errorf("pause sandbox %s: %w", s.Name, restapi.ErrPausedLimit)
	}
	return func() { x.rooms.GiveBack(s) }, nil
}

// watch is the index as a pauseroom.Watch.
type watch struct{ index *index.Index }

func (w watch) Paused(_ context.Context, namespace, pool string) (int, error) {
	return w.index.Paused(namespace, pool), nil
}

func (w watch) PauseOrder(_ context.Context, id string) (types.UID, int64, error) {
	a := w.index.Resolve(id)
	if a.State == routing.Ended {
		return "", 0, nil
	}
	return a.UID, a.PauseOrder, nil
}

// Resume implements restapi.Sandboxes.
func (x *Backend) Resume(ctx context.Context, namespace, id string, timeout time.Duration) (resumed restapi.Sandbox, was bool, err error) {
	resumed, was, err = x.resume(ctx, namespace, id, timeout)
	if err != nil && !errors.Is(err, restapi.ErrNotFound) { // was it killed meanwhile?
		if _, gone := x.get(ctx, namespace, id); errors.Is(gone, restapi.ErrNotFound) {
			err = gone
		}
	}
	return resumed, was, err
}

func (x *Backend) resume(ctx context.Context, namespace, id string, timeout time.Duration) (resumed restapi.Sandbox, was bool, err error) {
	for range pauseTries {
		s, err := x.get(ctx, namespace, id)
		if err != nil {
			return restapi.Sandbox{}, false, err
		}
		switch hibernates := s.Spec.Restore != nil; {
		case hibernates && x.snapshots == nil:
			return restapi.Sandbox{}, false, fmt.Errorf("resume sandbox %s: %w", id, restapi.ErrNoStore)
		case hibernates:
			if err := x.restoreNow(ctx, s, timeout); err != nil {
				return restapi.Sandbox{}, false, err
			}
			was = was || v1alpha1.Hibernated(s)
			continue // to what has come of it
		case !s.Spec.Paused:
			return x.describe(s), was, nil
		}
		err = x.pauser.Resume(ctx, s, v1alpha1.EndAfter(time.Now(), timeout))
		if err == nil {
			return x.describe(s), true, nil
		}
		if !errors.Is(err, writes.ErrStale) {
			return restapi.Sandbox{}, false, err
		}
	}
	return restapi.Sandbox{}, false, fmt.Errorf("resume sandbox %s: %w", id, writes.ErrStale)
}

// undoTimeoutOfResume bounds the write that takes a resume back.
const undoTimeoutOfResume = 5 * time.Second

// restoreNow resumes a sandbox that hibernates, to run for that long, or waits for the
// resume that is under way. If that fails and the sandbox has no pod it hibernates again;
// one that is bound goes on.
func (x *Backend) restoreNow(ctx context.Context, s *v1alpha1.Sandbox, timeout time.Duration) error {
	r := routing.Request{ID: s.Name, Namespace: s.Spec.Namespace, Env: s.Spec.Env, Pool: s.Spec.Pool, Team: s.Spec.Team, MayClaim: true}
	if v1alpha1.Hibernated(s) {
		r.Resume = routing.Resume{UID: s.UID, Lifetime: max(timeout, 1)} // 0 were no end
	}
	err := x.activate(ctx, r, nil)
	if err == nil {
		return nil
	}
	if r.Resume.UID != "" {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeoutOfResume)
		defer cancel()
		if undo := x.rehibernate(ctx, s); undo != nil {
			err = errors.Join(err, undo) // the controller sees to it
		}
	}
	deadline, _ := ctx.Deadline()
	switch {
	case errors.Is(err, files.ErrSaveMismatch):
		return fmt.Errorf("%w: %w", restapi.Invalidf("%s", files.ErrSaveMismatch.Error()), err)
	case errors.Is(err, activation.ErrNotReady) && time.Until(deadline) > time.Second: // refused, and not late
		return fmt.Errorf("resume sandbox %s: %s", s.Name, err.Error())
	}
	return fmt.Errorf("resume sandbox %s: %w", s.Name, createError(err))
}

// lifeSince returns the time from which a sandbox's longest life counts: when it was made,
// or, since paused time does not count, when it was last resumed. That is the present time
// while the status shows no resume after the last pause.
func lifeSince(s *v1alpha1.Sandbox) time.Time {
	switch {
	case !v1alpha1.EverPaused(s):
		return v1alpha1.SandboxCreatedAt(s)
	case v1alpha1.Awake(s):
		return s.Status.Pause.Since.Time
	}
	return time.Now()
}

// pausedAt is when a paused sandbox was paused; if the status does not show that yet,
// now.
func pausedAt(s *v1alpha1.Sandbox) time.Time {
	if p := s.Status.Pause; p != nil && p.State != v1alpha1.ReasonResumed {
		return p.Since.Time
	}
	return time.Now().Truncate(time.Second)
}
