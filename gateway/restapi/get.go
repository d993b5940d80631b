package restapi

import (
	"context"
	"net/http"
)

// Health is GET /health. It says nothing of the gateway, which has its own.
func (s *Server) Health(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}

// GetSandbox is GET /sandboxes/{sandboxID}.
func (s *Server) GetSandbox(w http.ResponseWriter, r *http.Request, _ string) {
	sandbox, template, err := s.find(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	asked, err := s.o.Sandboxes.AskedEgress(r.Context(), sandbox)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, s.detailView(sandbox, template, asked))
}

// KillSandbox is DELETE /sandboxes/{sandboxID}. The end is written also when the
// client leaves meanwhile: it has asked for it.
func (s *Server) KillSandbox(w http.ResponseWriter, r *http.Request, _ string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), createDeadline)
	defer cancel()
	c := callOf(r)
	s.done(w, r, s.o.Sandboxes.End(ctx, c.owner.Namespace, c.sandboxID))
}

// unsupported answers an operation that is not there: with 501, 404 if it is about a
// sandbox that does not exist, or 400 if its body is no JSON.
func (s *Server) unsupported(message string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body any
		if err := decode(r, &body); err != nil {
			s.fail(w, r, err)
			return
		}
		if callOf(r).sandboxID != "" {
			if _, _, err := s.find(r); err != nil {
				s.fail(w, r, err)
				return
			}
		}
		s.metrics.unsupported.WithLabelValues(callOf(r).route.Name(), allOfIt).Inc()
		s.fail(w, r, refuse(http.StatusNotImplemented, message))
	}
}

// find returns the sandbox that the path names, and its template.
func (s *Server) find(r *http.Request) (Sandbox, Template, error) {
	c := callOf(r)
	sandbox, err := s.o.Sandboxes.Get(r.Context(), c.owner.Namespace, c.sandboxID)
	if err != nil {
		return Sandbox{}, Template{}, err
	}
	return sandbox, s.templatesOf(c.owner.Namespace).of(sandbox), nil
}

// done answers a request that has no body to give.
func (s *Server) done(w http.ResponseWriter, r *http.Request, err error) {
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
