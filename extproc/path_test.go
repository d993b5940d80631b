package extproc

import (
	"errors"
	"net/http"
	"testing"
)

func TestControlPath(t *testing.T) {
	tests := []struct {
		path     string
		clean    string
		reserved bool
		err      error
	}{
		{path: "/init", clean: "/init", reserved: true},
		{path: "/init/", clean: "/init", reserved: true},
		{path: "/init?x=/files", clean: "/init", reserved: true},
		{path: "//init", clean: "/init", reserved: true},
		{path: "/a/../init", clean: "/init", reserved: true},
		{path: "/./init/.", clean: "/init", reserved: true},
		{path: "/../../init", clean: "/init", reserved: true},
		{path: "/%69nit", clean: "/init", reserved: true},
		{path: "/a%2f..%2finit", clean: "/init", reserved: true},
		{path: "%2finit", clean: "/init", reserved: true},
		{path: "/a%2F%2e%2e%2Ffsfreeze", clean: "/fsfreeze", reserved: true},
		{path: `/a\..\init`, clean: "/init", reserved: true},
		{path: "/a%5c..%5cinit", clean: "/init", reserved: true},
		{path: "/archive", clean: "/archive", reserved: true},
		{path: "/x/..%2frestore", clean: "/restore", reserved: true},
		{path: "/collapse", clean: "/collapse", reserved: true},
		{path: "/freeze", clean: "/freeze", reserved: true},
		{path: "/fsthaw", clean: "/fsthaw", reserved: true},
		{path: "/unfreeze", clean: "/unfreeze", reserved: true},
		{path: "/upgrade", clean: "/upgrade", reserved: true},
		{path: "/init/x", clean: "/init/x"},
		{path: "/INIT", clean: "/INIT"},
		{path: "/files?path=/init", clean: "/files"},
		{path: "/%2569nit", clean: "/%69nit"}, // the agent decodes once, too
		{path: "/health", clean: "/health"},
		{path: "*", clean: "/*"},
		{path: "/%zz", err: errPath},
		{path: "/init%", err: errPath},
	}
	for _, tt := range tests {
		clean, reserved, err := controlPath(tt.path)
		if clean != tt.clean || reserved != tt.reserved || !errors.Is(err, tt.err) {
			t.Errorf("controlPath(%q) = %q, %v, %v; want %q, %v, %v", tt.path, clean, reserved, err, tt.clean, tt.reserved, tt.err)
		}
	}
}

// The control paths are refused before anything is looked up, in every form of
// a target, and on sandboxd's port only.
func TestControlPathsAreBlocked(t *testing.T) {
	f := newFixture(t)
	f.put(t, testRoute("hello"))
	blocked := [][]string{
		{":authority", "49983-hello.localhost", ":path", "/init"},
		{":authority", "49983-unknown.localhost", ":path", "/x/..%2finit?a"},
		{":authority", "localhost", ":path", "/sandboxes/hello/49983/upgrade"},
		{":authority", "localhost", ":path", "/sandboxes/hello/49983//upgrade"},
		{":authority", "sandbox.e2b.app", ":path", "/freeze", "e2b-sandbox-id", "hello", "e2b-sandbox-port", "49983"},
	}
	for _, h := range blocked {
		a := f.ask(t, h...)
		if a.status != http.StatusNotFound || a.body.Path == "" ||
			a.body.Message != "This endpoint is reserved for the E2B control plane and is not reachable through the sandbox URL" {
			t.Errorf("%v: %+v", h, a)
		}
	}
	if f.resolver.lookups+f.resolver.reads > 0 {
		t.Error("a blocked path was looked up")
	}
	for _, h := range [][]string{
		{":authority", "8000-hello.localhost", ":path", "/init"},
		{":authority", "49983-hello.localhost", ":path", "/files"},
	} {
		if a := f.ask(t, h...); a.destination == "" {
			t.Errorf("%v: not routed: %+v", h, a)
		}
	}
	if a := f.ask(t, ":authority", "49983-hello.localhost", ":path", "/%zz"); a.status != http.StatusBadRequest {
		t.Errorf("undecodable path: %+v", a)
	}
}
