package restapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/api"
)

const (
	// defaultLifetime bounds sandboxes of templates that say nothing, or are gone.
	defaultLifetime = 24 * time.Hour
	// refreshDuration is what a refresh asks for at least.
	refreshDuration = 15 // s
)

// ConnectSandbox is POST /sandboxes/{sandboxID}/connect.
func (s *Server) ConnectSandbox(w http.ResponseWriter, r *http.Request, _ string) {
	var body api.ConnectSandbox
	if err := decode(r, &body); err != nil {
		s.fail(w, r, err)
		return
	}
	s.connect(w, r, body.Timeout, body.Memory)
}

// ConnectSandboxV2 is POST /v2/sandboxes/{sandboxID}/connect.
func (s *Server) ConnectSandboxV2(w http.ResponseWriter, r *http.Request, _ string) {
	body := api.ConnectSandboxV2{Timeout: new(int64(timeoutV2))}
	if err := decode(r, &body); err != nil {
		s.fail(w, r, err)
		return
	}
	if body.Timeout == nil {
		body.Timeout = new(int64(timeoutV2))
	}
	s.connect(w, r, *body.Timeout, body.Memory)
}

// findFor returns the sandbox that the path names, and its template, for a resume with the
// timeout. A timeout that no template allows is refused before the sandbox is looked for.
func (s *Server) findFor(r *http.Request, timeout int64) (sandbox Sandbox, template Template, d time.Duration, err error) {
	if _, err = timeoutWithin(defaultLifetime, timeout); err == nil {
		sandbox, template, err = s.find(r)
	}
	if err == nil {
		d, err = timeoutWithin(maxLifetime(template), timeout)
	}
	return sandbox, template, d, err
}

// connectTries bounds how often a connect starts over because the sandbox was paused
// since it was looked at.
const connectTries = 3

// connect resumes a paused sandbox, with exactly the timeout unless another request does so
// at the same time, and extends another.
func (s *Server) connect(w http.ResponseWriter, r *http.Request, timeout int64, memory *bool) {
	status := http.StatusOK
	sandbox, template, d, err := s.findFor(r, timeout)
	if err == nil {
		var resumed bool
		if sandbox, resumed, err = s.resumeOrExtend(r, sandbox, template, d, memory); resumed {
			status = http.StatusCreated
		}
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, status, s.sandboxView(sandbox, template))
}

func (s *Server) resumeOrExtend(r *http.Request, sandbox Sandbox, template Template, d time.Duration, memory *bool) (now Sandbox, resumed bool, err error) {
	for range connectTries {
		if sandbox.Paused {
			if sandbox, resumed, err = s.resume(r, sandbox, template, d, memory); err != nil || resumed {
				return sandbox, resumed, err
			}
		}
		if now, err = s.extend(r.Context(), sandbox, template, d); !errors.Is(err, ErrPaused) {
			return now, false, err
		}
		sandbox.Paused = true
	}
	if errors.Is(err, ErrResuming) {
		return now, false, err
	}
	return now, false, refuse(http.StatusConflict, fmt.Sprintf("Sandbox %s is being paused and resumed by other calls", sandbox.ID))
}

// RefreshSandbox is POST /sandboxes/{sandboxID}/refreshes.
func (s *Server) RefreshSandbox(w http.ResponseWriter, r *http.Request, _ string) {
	var body api.SandboxRefresh
	err := decode(r, &body)
	if err == nil {
		d := int64(refreshDuration)
		if body.Duration != nil {
			d = max(d, *body.Duration)
		}
		var sandbox Sandbox
		var template Template
		if sandbox, template, err = s.find(r); err == nil {
			_, err = s.extend(r.Context(), sandbox, template, time.Duration(d)*time.Second)
		}
	}
	s.done(w, r, err)
}

// SetSandboxTimeout is POST /sandboxes/{sandboxID}/timeout. As E2B's, it gives as
// much as the longest life allows instead of refusing more; 0 ends the sandbox now. A
// sandbox of a first request has no end, and may have run for longer than that: it is not
// ended by who wants to keep it.
func (s *Server) SetSandboxTimeout(w http.ResponseWriter, r *http.Request, _ string) {
	var body api.SandboxTimeout
	err := decode(r, &body)
	if err == nil && body.Timeout < 0 {
		err = refuse(http.StatusBadRequest, "timeout: must not be negative")
	}
	if err == nil {
		var sandbox Sandbox
		var template Template
		if sandbox, template, err = s.find(r); err == nil {
			at, longest := latestEnd(sandbox, template), maxLifetime(template)
			if body.Timeout < int64(longest/time.Second) {
				at = earlier(at, ceil(time.Now().Add(time.Duration(body.Timeout)*time.Second)))
			}
			if body.Timeout > 0 && !at.After(time.Now()) {
				err = refuse(http.StatusBadRequest, fmt.Sprintf("timeout: the sandbox has run for longer than %d seconds, and can only be ended, with 0", int64(longest/time.Second)))
			} else {
				_, err = s.o.Sandboxes.SetEnd(r.Context(), sandbox.Namespace, sandbox.ID, at, true)
			}
		}
	}
	s.done(w, r, err)
}

// extend moves the end of a sandbox to d from now, unless it is later already or
// there is none.
func (s *Server) extend(ctx context.Context, sandbox Sandbox, template Template, d time.Duration) (Sandbox, error) {
	at := earlier(ceil(time.Now().Add(d)), latestEnd(sandbox, template))
	if sandbox.EndAt.IsZero() || !at.After(sandbox.EndAt) {
		return sandbox, nil
	}
	return s.o.Sandboxes.SetEnd(ctx, sandbox.Namespace, sandbox.ID, at, false)
}

// timeoutWithin returns a timeout in seconds as a duration, if it is one that a
// sandbox may have.
func timeoutWithin(longest time.Duration, timeout int64) (time.Duration, error) {
	if timeout < 0 {
		return 0, refuse(http.StatusBadRequest, "timeout: must not be negative")
	}
	if timeout > int64(longest/time.Second) {
		return 0, refuse(http.StatusBadRequest, fmt.Sprintf("timeout: cannot be greater than %d seconds", int64(longest/time.Second)))
	}
	return time.Duration(timeout) * time.Second, nil
}

func maxLifetime(t Template) time.Duration {
	if t.MaxLifetime <= 0 {
		return defaultLifetime
	}
	return t.MaxLifetime
}

func latestEnd(sandbox Sandbox, template Template) time.Time {
	since := sandbox.StartedAt
	if sandbox.ResumedAt.After(since) {
		since = sandbox.ResumedAt
	}
	return ceil(since.Add(maxLifetime(template)))
}

// ceil rounds up to a second: ends are kept to the second, and no sandbox gets less
// than was promised.
func ceil(t time.Time) time.Time {
	if whole := t.Truncate(time.Second); whole.Before(t) {
		return whole.Add(time.Second)
	}
	return t.Truncate(time.Second)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
