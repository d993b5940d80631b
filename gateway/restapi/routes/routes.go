// Package routes finds the operation of an OpenAPI document that a request asks for. Make a
// [Router] with New, add the handlers, and Find the route of each request; package restapi
// fills one from openapi.yaml.
package routes

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// Route is one operation.
type Route struct {
	Method, Path string // as in the document
	Item         *openapi3.PathItem
	Operation    *openapi3.Operation
	Handle       http.HandlerFunc
	segments     []string
}

// Name is what logs and metrics call it.
func (rt *Route) Name() string { return rt.Method + " " + rt.Path }

// Mutates reports whether it may change something.
func (rt *Route) Mutates() bool { return rt.Method != http.MethodGet }

// Router finds the operation of a request. It is not http.ServeMux because that
// refuses "/templates/aliases/{alias}" beside "/templates/{templateID}/tags",
// redirects, and answers in plain text. Once all handlers are added it is
// safe for concurrent use.
type Router struct {
	Doc *openapi3.T
	// routes by number of segments, in the order in which they are tried.
	routes map[int][]*Route
}

// New returns a router of a document that has no handlers yet.
func New(doc *openapi3.T) *Router { return &Router{Doc: doc, routes: map[int][]*Route{}} }

// All returns the routes that have handlers, in no order.
func (t *Router) All() []*Route { return slices.Concat(slices.Collect(maps.Values(t.routes))...) }

// HandleFunc adds the handler of an operation: "METHOD /path" of the document. The
// generated code calls it.
func (t *Router) HandleFunc(pattern string, handle func(http.ResponseWriter, *http.Request)) {
	method, path, _ := strings.Cut(pattern, " ")
	item := t.Doc.Paths.Value(path)
	rt := &Route{
		Method: method, Path: path, segments: strings.Split(path, "/"),
		Item: item, Operation: item.GetOperation(method), Handle: handle,
	}
	n := len(rt.segments)
	t.routes[n] = append(t.routes[n], rt)
	// '{' sorts after all letters, so names come before parameters.
	slices.SortFunc(t.routes[n], func(a, b *Route) int { return strings.Compare(a.Path, b.Path) })
}

// ServeHTTP is there for the generated code, which wants a mux; it is not called.
func (*Router) ServeHTTP(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }

// Find returns the route of a request and its path parameters, or nil and the
// methods that this path has. A HEAD is answered as a GET.
func (t *Router) Find(method, escapedPath string) (found *Route, params map[string]string, methods []string) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	segments := strings.Split(escapedPath, "/")
	for _, rt := range t.routes[len(segments)] {
		params, ok := rt.match(segments)
		if !ok {
			continue
		}
		if rt.Method == method {
			return rt, params, nil
		}
		if !slices.Contains(methods, rt.Method) {
			methods = append(methods, rt.Method)
		}
	}
	return nil, nil, methods
}

func (rt *Route) match(segments []string) (map[string]string, bool) {
	params := map[string]string{}
	for i, want := range rt.segments {
		got, err := url.PathUnescape(segments[i])
		if err != nil {
			return nil, false
		}
		name, isParam := strings.CutPrefix(want, "{")
		switch {
		case isParam && got != "":
			params[strings.TrimSuffix(name, "}")] = got
		case isParam || got != want:
			return nil, false
		}
	}
	return params, true
}
