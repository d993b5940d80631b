package sandboxd

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"

	"github.com/sandlane/sandlane/sandboxd/access"
	"github.com/sandlane/sandlane/sandboxd/identity"
	"github.com/sandlane/sandlane/sandboxd/trust"
)

// caller answers the services' questions about a request: it has what /init set, and what
// the image and the sandbox's identity add.
type caller struct {
	*access.State
	identity *identity.Identity
	imageEnv map[string]string // never written
	workdir  string            // the image's
	trust    *trust.Store
}

// Workdir returns the default working directory: that of /init, else the image's, else
// nothing.
func (c *caller) Workdir() string { return cmp.Or(c.State.Workdir(), c.workdir) }

// ImageEnv returns a copy of the variables of the image that commands get.
func (c *caller) ImageEnv() map[string]string { return maps.Clone(c.imageEnv) }

// Env returns the variables that /init set, those of the sandbox's identity, and those by
// which programs trust egress's authority, unless /init set them.
func (c *caller) Env() map[string]string {
	env := map[string]string{}
	maps.Copy(env, c.trust.Env())
	maps.Copy(env, c.State.Env())
	return c.identity.Env(env)
}

// init serves POST /init. If the request is accepted, it takes the sandbox's identity from
// its headers.
func (s *Server) init(caller *caller) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer := &statusWriter{ResponseWriter: w}
		caller.Init(answer, r)
		if answer.status != http.StatusNoContent {
			return
		}
		if err := caller.identity.Learn(r.Header); err != nil {
			_, _ = fmt.Fprintln(s.options.Log, "sandboxd:", err)
		}
	}
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}
