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
	// trustEgress adds to trust.
	trustEgress func(authorities []byte)
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

// maxAuthorities bounds the body of PUT /init.
const maxAuthorities = 256 << 10

// trustMore serves PUT /init: a sandbox that runs has got its first rules, and its programs
// are to trust what the body has.
func (c *caller) trustMore(w http.ResponseWriter, r *http.Request) {
	_, authorities, ok := c.Command(w, r, "trust", maxAuthorities, nil)
	switch {
	case !ok:
	case !c.Initialised():
		access.Error(w, http.StatusPreconditionFailed, errNotInit.Error())
	default:
		c.trustEgress(authorities)
		w.WriteHeader(http.StatusNoContent)
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
