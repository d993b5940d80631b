package kubetest

import (
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
)

// Scope makes what uses the configuration see one namespace alone: lists and
// watches over all namespaces become those of pods, pools and envs in ns, and of
// Sandboxes whose spec.namespace it is. With it each test has controllers and
// gateways of its own on the shared API server, at the same time as other tests.
//
// It is for tests alone: a controller that sees one namespace does not know what
// had a pod's address in another.
func Scope(cfg *rest.Config, ns string) {
	cfg.Wrap(func(base http.RoundTripper) http.RoundTripper { return scoped{base, ns} })
}

// scoped changes requests on their way to the API server.
type scoped struct {
	base http.RoundTripper
	ns   string
}

const ours = "/apis/sandlane.dev/v1alpha1/"

// RoundTrip implements http.RoundTripper.
func (s scoped) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		return s.base.RoundTrip(r)
	}
	switch r.URL.Path {
	case "/api/v1/pods", ours + "sandboxpools", ours + "sandboxenvs":
		r = r.Clone(r.Context())
		group, kind := r.URL.Path[:strings.LastIndexByte(r.URL.Path, '/')], r.URL.Path[strings.LastIndexByte(r.URL.Path, '/'):]
		r.URL.Path = group + "/namespaces/" + s.ns + kind
	case ours + "sandboxes":
		r = r.Clone(r.Context())
		query := r.URL.Query()
		selector := "spec.namespace=" + s.ns
		if asked := query.Get("fieldSelector"); asked != "" {
			selector += "," + asked
		}
		query.Set("fieldSelector", selector)
		r.URL.RawQuery = query.Encode()
	}
	return s.base.RoundTrip(r)
}
