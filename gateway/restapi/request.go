package restapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/json"

	"github.com/sandlane/sandlane/gateway/restapi/cors"
	"github.com/sandlane/sandlane/gateway/restapi/requestbody"
	"github.com/sandlane/sandlane/gateway/restapi/requestid"
	"github.com/sandlane/sandlane/gateway/restapi/routes"
	"github.com/sandlane/sandlane/gateway/restapi/sandboxid"
	"github.com/sandlane/sandlane/routing"
)

// call is what is known of one request. Only its own goroutine touches it.
type call struct {
	started   time.Time
	route     *routes.Route // nil until found
	params    map[string]string
	owner     routing.KeyOwner // zero until authenticated
	sandboxID string           // "" until known
	// quiet leaves the request out of the audit log.
	quiet bool
}

type callKey struct{}

// callOf returns the call of a request that serveHTTP has prepared.
func callOf(r *http.Request) *call { return r.Context().Value(callKey{}).(*call) }

// recorder remembers the status.
type recorder struct {
	http.ResponseWriter
	status int
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets an http.ResponseController find the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// serveHTTP takes a request through the steps that server.go names.
func (s *Server) serveHTTP(writer http.ResponseWriter, r *http.Request) {
	w, c := &recorder{ResponseWriter: writer}, &call{started: time.Now()}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	defer func() {
		if p := recover(); p != nil {
			s.panicked(w, r, p)
		}
		s.observe(w, r, c)
	}()
	cors.Allow(w.Header())
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	rt, params, methods := s.router.Find(r.Method, r.URL.EscapedPath())
	switch {
	case rt == nil && len(methods) == 0:
		s.fail(w, r, refuse(http.StatusNotFound, "There is no such path in this API."))
		return
	case rt == nil:
		slices.Sort(methods)
		w.Header().Set("Allow", strings.Join(methods, ", "))
		s.fail(w, r, refuse(http.StatusMethodNotAllowed, fmt.Sprintf("%s is not a method of this path.", r.Method)))
		return
	}
	c.route, c.params = rt, params
	for name, value := range params {
		r.SetPathValue(name, value)
	}
	if err := s.prepare(w, r, c); err != nil {
		s.fail(w, r, err)
		return
	}
	rt.Handle(w, r)
}

// prepare does what comes before every handler.
func (s *Server) prepare(w http.ResponseWriter, r *http.Request, c *call) error {
	if needsKey(c.route.Operation) {
		if err := s.authenticate(w, r, c); err != nil {
			return err
		}
	}
	if !isStreamed(c.route.Operation) {
		if err := requestbody.Read(w, r); err != nil {
			return err
		}
	}
	if id, named := c.params["sandboxID"]; named {
		var ok bool
		if c.sandboxID, ok = sandboxid.Short(id); !ok {
			return refuse(http.StatusBadRequest, "Invalid sandbox ID")
		}
	}
	err := s.validate(r, c)
	var wrong *refusal
	if c.ofSecrets() && errors.As(err, &wrong) {
		return invalidSecret(wrong.message)
	}
	return err
}

func (s *Server) panicked(w *recorder, r *http.Request, p any) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p)
	}
	id := requestid.Of(r)
	s.o.Log.Error("a handler of the REST API panicked", "request", id, "panic", p, "stack", string(debug.Stack()))
	if w.status != 0 {
		// Half an answer must not look like a whole one.
		panic(http.ErrAbortHandler)
	}
	s.fail(w, r, internal(id))
}

// decode reads the validated body into into; an empty one leaves it as it is. Names
// count as they are written, as in openapi.yaml against which the body was checked:
// the decoder of the standard library would take "Timeout" for "timeout", unchecked.
func decode(r *http.Request, into any) error {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return fmt.Errorf("read a body from memory: %w", err)
	}
	if len(data) == 0 {
		return nil
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(data, into); err != nil {
		// The decoder's text may repeat what the body says; it is not passed on.
		return refuse(http.StatusBadRequest, "The request's body is not what this operation takes.")
	}
	return nil
}
