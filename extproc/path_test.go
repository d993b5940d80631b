package extproc

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

func TestControlPath(t *testing.T) {
	tests := []struct {
		path     string
		reserved string
		err      error
	}{
		{path: "/init", reserved: "/init"},
		{path: "/init/", reserved: "/init"},
		{path: "/init?x=/files", reserved: "/init"},
		{path: "//init", reserved: "/init"},
		{path: "/a/../init", reserved: "/init"},
		{path: "/./init/.", reserved: "/init"},
		{path: "/../../init", reserved: "/init"},
		{path: "/%69nit", reserved: "/init"},
		{path: "/a%2f..%2finit", reserved: "/init"},
		{path: "%2finit", reserved: "/init"},
		{path: "/a%2F%2e%2e%2Ffsfreeze", reserved: "/fsfreeze"},
		{path: `/a\..\init`, reserved: "/init"},
		{path: "/a%5c..%5cinit", reserved: "/init"},
		{path: "/archive", reserved: "/archive"},
		{path: "/x/..%2frestore", reserved: "/restore"},
		{path: "/collapse", reserved: "/collapse"},
		{path: "/freeze", reserved: "/freeze"},
		{path: "/fsthaw", reserved: "/fsthaw"},
		{path: "/unfreeze", reserved: "/unfreeze"},
		{path: "/upgrade", reserved: "/upgrade"},
		{path: "/init/x"},
		{path: "/INIT"},
		{path: "/files?path=/init"},
		{path: "/%2569nit", reserved: "/init"},
		{path: "/a%252f..%252finit", reserved: "/init"},
		{path: "/a%255c..%255cinit", reserved: "/init"},
		{path: `/a%5C..\init`, reserved: "/init"},
		{path: `\init`, reserved: "/init"},
		{path: "/.%2Finit//", reserved: "/init"},
		{path: "/%2e%2e//init", reserved: "/init"},
		{path: "/in%69t/%2E./..", reserved: "/init"}, // cleaned, then decoded
		{path: `/in%69t/%2E.\..`, reserved: "/init"},
		{path: "/init%3Fx"}, // sandboxd takes none of these for /init
		{path: "/init;x"},
		{path: "/init%00"},
		{path: "/init%20"},
		{path: "/in//it"},
		{path: "/health"},
		{path: "*"},
		{path: "/%zz", err: errPath},
		{path: "/init%", err: errPath},
	}
	for _, tt := range tests {
		reserved, err := controlPath(tt.path)
		if reserved != tt.reserved || !errors.Is(err, tt.err) {
			t.Errorf("controlPath(%q) = %q, %v; want %q, %v", tt.path, reserved, err, tt.reserved, tt.err)
		}
	}
}

// A long path that would have many readings is refused, since they cost milliseconds before
// anybody is known. A clean one is read.
func TestLongPaths(t *testing.T) {
	long := "/" + strings.Repeat("a", 60_000)
	for _, p := range []string{long + `\b/./%5cb/%2e/%255cb/%252e/x`, long + "/%61", long + "//", long + "/../x"} {
		for what, read := range map[string]func() error{
			"on sandboxd's port": func() error { _, err := controlPath(p); return err },
			"on a shared host": func() error {
				_, err := ParseTarget(&Headers{Authority: Field{Value: "localhost", Count: 1}, Path: Field{Value: p, Count: 1}})
				return err
			},
		} {
			if err := read(); !errors.Is(err, errLongPath) {
				t.Errorf("...%s %s: %v", p[len(long):], what, err)
			}
		}
	}
	if target, err := ParseTarget(&Headers{Authority: Field{Value: "localhost", Count: 1}, Path: Field{Value: "/sandboxes/a/8000" + long + "/?%", Count: 1}}); err != nil || target.ID != "a" {
		t.Errorf("a clean one: %+v, %v", target.ID, err)
	}
	if _, err := controlPath(long + "/"); err != nil {
		t.Error(err)
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

// What follows a request to upgrade is not read as HTTP, so sandboxd gets no such request.
func TestNoUpgradeOfSandboxd(t *testing.T) {
	f := newFixture(t)
	f.put(t, testRoute("hello"))
	for _, protocol := range []string{"websocket", "tcp", "SPDY/3.1", ""} {
		for _, h := range [][]string{
			{":authority", "49983-HELLO.localhost.", ":path", "/files"},
			{":authority", "localhost", ":path", "/sandboxes/hello/49983/health"},
			{":authority", "localhost", ":path", "/health", "x-sandbox-id", "hello", "x-sandbox-port", "49983"},
		} {
			if a := f.ask(t, append(h, "upgrade", protocol)...); a.status != http.StatusBadRequest || a.destination != "" {
				t.Errorf("%v to %q: %+v", h, protocol, a)
			}
		}
	}
	if a := f.ask(t, ":authority", "8000-hello.localhost", ":path", "/", "upgrade", "websocket"); a.destination == "" {
		t.Errorf("another port: %+v", a)
	}
}
