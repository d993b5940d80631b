package restapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/api"
)

// transitionTimeout bounds a pause that keeps the memory, once it has begun: it goes on
// when the client leaves, so that it is not left half done.
const transitionTimeout = 20 * time.Second

// ErrNoStore says that the gateway has no folder for what is kept of sandboxes.
var ErrNoStore = errors.New("there is no folder for the files of sandboxes")

// PauseSandbox is POST /sandboxes/{sandboxID}/pause. Calls of one moment are one pause, whose
// outcome all get; at another gateway they find a paused sandbox.
func (s *Server) PauseSandbox(w http.ResponseWriter, r *http.Request, _ string) {
	var body api.SandboxPause
	err := decode(r, &body)
	if err == nil {
		limit := transitionTimeout
		if is(body.Memory, false) {
			limit = snapshotTimeout
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), limit)
		defer cancel()
		c := callOf(r)
		memory := !is(body.Memory, false)
		_, err, _ = s.pauses.Do(fmt.Sprint(c.owner.Namespace, "/", c.sandboxID, "/", memory), func() (any, error) {
			return nil, s.o.Sandboxes.Pause(ctx, c.owner.Namespace, c.sandboxID, memory)
		})
	}
	s.done(w, r, err)
}

// ResumeSandbox is POST /sandboxes/{sandboxID}/resume, of old SDKs.
func (s *Server) ResumeSandbox(w http.ResponseWriter, r *http.Request, _ string) {
	body := api.ResumedSandbox{Timeout: new(int64(timeoutV1))}
	if err := decode(r, &body); err != nil {
		s.fail(w, r, err)
		return
	}
	if body.Timeout == nil {
		body.Timeout = new(int64(timeoutV1))
	}
	sandbox, template, d, err := s.findFor(r, *body.Timeout)
	if err == nil && is(body.AutoPause, true) && !sandbox.AutoPause {
		err = refuse(http.StatusBadRequest, "autoPause: is for the create; leave it out or set it to false")
	}
	switch {
	case err != nil:
	case sandbox.Paused: // if others resume it at the same time, it gets the timeout all the same
		sandbox, _, err = s.resumeOrExtend(r, sandbox, template, d, body.Memory)
	default: // a resume may be under way
		var was bool
		if sandbox, was, err = s.resume(r, sandbox, template, d, body.Memory); err == nil && !was {
			err = refuse(http.StatusConflict, fmt.Sprintf("Sandbox %s is already running", sandbox.ID))
		}
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusCreated, s.sandboxView(sandbox, template))
}

// resume resumes a sandbox, which gets the timeout at least: one that another request has
// resumed meanwhile is extended, as one that runs is. was is false if it was not paused any
// more, and nothing was done.
func (s *Server) resume(r *http.Request, sandbox Sandbox, template Template, timeout time.Duration, memory *bool) (resumed Sandbox, was bool, err error) {
	if is(memory, false) && sandbox.Frozen {
		return Sandbox{}, false, unsupportedField("memory", "the sandbox was paused with its memory; leave it out or set it to true")
	}
	// One that has no pod may wait for one, as a create does.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), createDeadline)
	defer cancel()
	begun := time.Now()
	resumed, was, err = s.resumeOnce(ctx, sandbox, timeout)
	if err != nil || !was || !resumed.EndAt.Before(earlier(begun.Add(timeout), latestEnd(resumed, template))) {
		return resumed, was, err
	}
	extended, err := s.extend(ctx, resumed, template, timeout)
	if errors.Is(err, ErrNotFound) { // paused again, or ended: it was resumed all the same
		return resumed, true, nil
	}
	return extended, true, err
}

// resumeOnce makes one resume of those of one moment, with the timeout of the first.
func (s *Server) resumeOnce(ctx context.Context, sandbox Sandbox, timeout time.Duration) (Sandbox, bool, error) {
	type outcome struct {
		sandbox Sandbox
		was     bool
	}
	v, err, _ := s.resumes.Do(sandbox.Namespace+"/"+sandbox.ID, func() (any, error) {
		resumed, was, err := s.o.Sandboxes.Resume(ctx, sandbox.Namespace, sandbox.ID, timeout)
		return outcome{resumed, was}, err
	})
	o := v.(outcome)
	return o.sandbox, o.was, err
}
