package restapi

import (
	"fmt"
	"strings"
	"testing"
)

// A list whose filter cannot be read whole is refused: without a part of it, it would show
// sandboxes that its client did not mean, and may go on to end.
func TestFilterThatCannotBeParsed(t *testing.T) {
	for _, query := range []string{
		"metadata=user%", "metadata=user%ZZ", "metadata=user%3Dx;y", ";metadata=user%3Dx", "limit=1&metadata=user%3D%",
		"metadata=user%3Dx&metadata=user%3Dy", "metadata=user%3Dx&metadata=", "metadata=user", "metadata=a%3Db%3Dc", "metadata=user%3Dx%26",
		"metadata=%25", "metadata=%2526", "metadata=user%3D%25FF", "metadata=user%3D%2525ZZ",
	} {
		for _, path := range []string{"/sandboxes?", "/v2/sandboxes?"} {
			f := newFake()
			w := ask(t, newServer(t, f, nil), "GET", path+query, keyA, "")
			if w.Code != 400 || len(f.lists) > 0 {
				t.Errorf("%s%s: %d %s, and %d lists were read", path, query, w.Code, w.Body, len(f.lists))
			}
		}
	}
	for _, query := range []string{"state=running;x", "template=%", "state=running&state=paused", "startedAfter=yesterday", "startedAfter=%ZZ"} {
		if w := ask(t, newServer(t, newFake(), nil), "GET", "/v2/sandboxes?"+query, keyA, ""); w.Code != 400 {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
	for _, query := range []string{"sandboxID=%ZZ", "name=x;", "name=a&name=b"} {
		s, _, _ := snapshotServer(t)
		if w := ask(t, s, "GET", "/snapshots?"+query, keyA, ""); w.Code != 400 {
			t.Errorf("snapshots with %s: %d %s", query, w.Code, w.Body)
		}
	}
}

// The kernel starts no program with a variable of 128 KiB: the create says so, not the first
// command.
func TestVariableThatTheKernelCannotTake(t *testing.T) {
	for length, want := range map[int]int{maxEnvVar - len("NAME=\x00"): 201, maxEnvVar - len("NAME=\x00") + 1: 400, 200 << 10: 400} {
		w := ask(t, newServer(t, newFake(), nil), "POST", "/v2/sandboxes", keyA,
			fmt.Sprintf(`{"templateID":"base","envVars":{"NAME":%q}}`, strings.Repeat("x", length)))
		if w.Code != want || want == 400 && !strings.Contains(w.Body.String(), "envVars") || strings.Contains(w.Body.String(), "xxxxxxxxxx") {
			t.Errorf("%d bytes: %d %.200s, want %d", length, w.Code, w.Body, want)
		}
	}
}

// A request that is wrong by itself is 400, whether or not what it names exists, or is
// supported here.
func TestWrongRequestBeforeMissingAndUnsupported(t *testing.T) {
	s := newServer(t, newFake(), nil) // without a store for snapshots
	for _, c := range []struct{ request, body string }{
		{"POST /v2/sandboxes", `{"templateID":"nosuch","timeout":999999999}`},
		{"POST /v2/sandboxes", `{"templateID":"nosuch","network":{"denyOut":["x"]}}`},
		{"POST /sandboxes/nosuch/connect", `{"timeout":999999999}`},
		{"POST /v2/sandboxes/nosuch/connect", `{"timeout":999999999}`},
		{"POST /sandboxes/nosuch/resume", `{"timeout":999999999}`},
		{"PUT /sandboxes/nosuch/network", `{"denyOut":["x"]}`},
		{"PUT /sandboxes/nosuch/network", `{"dnsServers":["1.1.1.1"]}`},
		{"POST /sandboxes/nosuch/snapshots", `{"name":"no name"}`},
		{"POST /sandboxes/nosuch/pause", `{"memory":1}`},
		{"GET /snapshots?nextToken=x", ``},
		{"GET /snapshots?name=%20", ``},
		{"GET /snapshots?sandboxID=..", ``},
		{"DELETE /templates/no%20name", ``},
		{"POST /v3/templates", `{`},
		{"POST /sandboxes/nosuch/fork", `{`},
		{"POST /sandboxes/nosuch/fork", `{"count":0}`},
		{"POST /sandboxes/nosuch/fork", `{"timeout":-1}`},
		{"POST /volumes", `[`},
		{"POST /secrets", `{]`},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		if w := ask(t, s, method, path, keyA, c.body); w.Code != 400 {
			t.Errorf("%s %s: %d %s, want 400", c.request, c.body, w.Code, w.Body)
		}
	}
}
