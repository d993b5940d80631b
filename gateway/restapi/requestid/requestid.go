// Package requestid gives each request an ID, by which a client and a log call the same
// error. Package restapi wraps its handlers with Handler; they log Of.
package requestid

import (
	"crypto/rand"
	"net/http"
)

// header has the client's ID, then the one in use.
const header = "X-Request-Id"

// longest is the length of the longest ID that is taken from a client.
const longest = 128

// Of returns the ID of a request that Handler has passed on.
func Of(r *http.Request) string { return r.Header.Get(header) }

// Handler passes requests on with an ID: the client's, or a new one if that may not stand
// in a log. Answers that are errors have it in a header.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := Of(r)
		if !valid(id) {
			id = rand.Text()
		}
		r.Header.Set(header, id)
		next.ServeHTTP(&writer{ResponseWriter: w, id: id}, r)
	})
}

// valid is the rule by which Envoy takes clients' IDs (envoy.namedByClient).
func valid(id string) bool {
	for _, c := range []byte(id) {
		if c < '!' || c > '~' {
			return false
		}
	}
	return id != "" && len(id) <= longest
}

type writer struct {
	http.ResponseWriter
	id string
}

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		w.Header().Set(header, w.id)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets an http.ResponseController find the connection.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
