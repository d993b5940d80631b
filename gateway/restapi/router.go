package restapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// route is one operation.
type route struct {
	method, path string // as in openapi.yaml
	segments     []string
	item         *openapi3.PathItem
	operation    *openapi3.Operation
	handle       http.HandlerFunc
}

// name is what logs and metrics call it.
func (rt *route) name() string { return rt.method + " " + rt.path }

// mutates reports whether it may change something.
func (rt *route) mutates() bool { return rt.method != http.MethodGet }

// router finds the operation of a request. It is not http.ServeMux because that
// refuses "/templates/aliases/{alias}" beside "/templates/{templateID}/tags",
// redirects, and answers in plain text. It is complete once NewServer returns.
type router struct {
	doc *openapi3.T
	// routes by number of segments, in the order in which they are tried.
	routes map[int][]*route
}

// HandleFunc adds the handler of an operation: "METHOD /path" of openapi.yaml. The
// generated code calls it.
func (t *router) HandleFunc(pattern string, handle func(http.ResponseWriter, *http.Request)) {
	method, path, _ := strings.Cut(pattern, " ")
	item := t.doc.Paths.Value(path)
	rt := &route{
		method: method, path: path, segments: strings.Split(path, "/"),
		item: item, operation: item.GetOperation(method), handle: handle,
	}
	n := len(rt.segments)
	t.routes[n] = append(t.routes[n], rt)
	// '{' sorts after all letters, so names come before parameters.
	slices.SortFunc(t.routes[n], func(a, b *route) int { return strings.Compare(a.path, b.path) })
}

// ServeHTTP is there for the generated code, which wants a mux; it is not called.
func (*router) ServeHTTP(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }

// find returns the route of a request and its path parameters, or nil and the
// methods that this path has. A HEAD is answered as a GET.
func (t *router) find(method, escapedPath string) (found *route, params map[string]string, methods []string) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	segments := strings.Split(escapedPath, "/")
	for _, rt := range t.routes[len(segments)] {
		params, ok := rt.match(segments)
		if !ok {
			continue
		}
		if rt.method == method {
			return rt, params, nil
		}
		if !slices.Contains(methods, rt.method) {
			methods = append(methods, rt.method)
		}
	}
	return nil, nil, methods
}

func (rt *route) match(segments []string) (map[string]string, bool) {
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
