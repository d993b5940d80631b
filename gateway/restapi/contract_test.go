package restapi

import (
	"context"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/sandboxid"
	"github.com/sandlane/sandlane/routing"
)

// What chapter 1 of the contract says of each request: status, headers, and parts
// of the body. {id} stands for team a's sandbox.
func TestContract(t *testing.T) {
	const create, createV2 = "POST /sandboxes", "POST /v2/sandboxes"
	missing := `Sandbox \"nosuch\" doesn't exist or you don't have access to it`
	for _, c := range []struct {
		request, body string
		status        int
		want          string // parts of the body, split by " && "; a part that begins with "!" must not be there
	}{
		// Create.
		{create, `{"templateID":"base"}`, 201, `"templateID":"base" && "alias":"default" && "clientID":"6532622b" && "envdVersion":"0.6.13" && "domain":"localhost:8080" && "trafficAccessToken":null && !envdAccessToken`},
		{create, `{"templateID":"default","timeout":300,"secure":true,"allow_internet_access":true,"autoPause":false,"metadata":{},"envVars":{}}`, 201, `"envdAccessToken":"envd-of-i`},
		{create, `{"templateID":"base","secure":true,"network":{"allowPublicTraffic":false}}`, 201, `"trafficAccessToken":"traffic-of-i`},
		{create, `{"templateID":"base","metadata":{"a":1}}`, 400, `"metadata.a: `},
		{create, `{"templateID":"base","timeout":0}`, 400, `"timeout: `},
		{create, `{}`, 400, `"templateID: `},
		{create, `{"templateID":"base","network":{"allowPublicTraffic":false}}`, 400, `enable secure envd access via 'secure' flag.`},
		{createV2, `{"templateID":"base","metadata":{"a":"b"},"envVars":{"K":"v"},"timeout":61}`, 201, `"envdAccessToken":"envd-of-i`},
		{createV2, `{"templateID":"base","secure":false}`, 201, `"envdAccessToken":"envd-of-i`},
		{createV2, `{"templateID":"base","network":{"allowPublicTraffic":false}}`, 201, `"trafficAccessToken":"traffic-of-i`},
		{createV2, `{"templateID":"base","unknown":{"x":1},"network":{"unknown":1}}`, 201, ``},
		{createV2, `{"templateID":"base","mcp":null,"iam":{"tokens":{}},"volumeMounts":[],"autoResume":{"enabled":false},"autoPauseMemory":true,"network":{"allowOut":[],"rules":{},"egressProxy":null,"allowPublicTraffic":true},"metadata":null}`, 201, ``},
		{createV2, `{"templateID":"nosuch"}`, 404, `Template \"nosuch\" doesn't exist`},
		{createV2, `{}`, 400, `templateID`},
		{createV2, ``, 400, `body: is required`},
		{createV2, `{"templateID":"base"`, 400, `body`},
		{createV2, `{"templateID":"base"}{}`, 400, `body`},
		{createV2, `[]`, 400, `body`},
		{createV2, `{"templateID":"base","timeout":0}`, 400, `timeout`},
		{createV2, `{"templateID":"base","timeout":-1}`, 400, `timeout`},
		{createV2, `{"templateID":"base","timeout":3601}`, 400, `timeout: cannot be greater than 3600 seconds`},
		{createV2, `{"templateID":"base","timeout":99999999999999}`, 400, `timeout`},
		{createV2, `{"templateID":"base","timeout":1.5}`, 400, `timeout`},
		{createV2, `{"templateID":"base","metadata":{"a":1}}`, 400, `metadata.a`},
		{createV2, `{"templateID":"base","envVars":{"A=B":"hunter2"}}`, 400, `envVars && !hunter2`},
		{createV2, `{"templateID":"base","envVars":{"PASSWORD":["hunter2"]}}`, 400, `envVars.PASSWORD && !hunter2`},
		{createV2, `{"templateID":"base","metadata":{"a":"` + strings.Repeat("x", maxMetadata) + `"}}`, 400, `metadata`},
		// What would not be done is refused by name.
		{createV2, `{"templateID":"base","autoPause":true}`, 400, `autoPause`},
		{createV2, `{"templateID":"base","autoPause":true,"autoPauseMemory":false}`, 501, `--checkpoint-dir`},
		{createV2, `{"templateID":"base","autoResume":{"enabled":true}}`, 400, `autoResume`},
		{createV2, `{"templateID":"base","mcp":{"x":{}}}`, 400, `mcp`},
		{createV2, `{"templateID":"base","iam":{"tokens":{"x":{}}}}`, 400, `iam`},
		{createV2, `{"templateID":"base","volumeMounts":[{"name":"v","path":"/v"}]}`, 400, `volumeMounts`},
		{createV2, `{"templateID":"base","network":{"allowOut":["1.1.1.1"],"denyOut":["0.0.0.0/0"]}}`, 201, ``},
		{createV2, `{"templateID":"base","allow_internet_access":false}`, 201, ``},
		{createV2, `{"templateID":"base","network":{"allowOut":["example.com"],"denyOut":["0.0.0.0/0"]}}`, 400, `network.allowOut: \"example.com\"`},
		{createV2, `{"templateID":"base","network":{"denyOut":["1.1.1.1/33"]}}`, 400, `network.denyOut`},
		{createV2, `{"templateID":"base","network":{"dnsServers":["1.1.1.1"]}}`, 400, `network.dnsServers`},
		{createV2, `{"templateID":"base","network":{"httpsPorts":[443]}}`, 400, `network.httpsPorts`},
		{createV2, `{"templateID":"base","network":{"maskRequestHost":"x"}}`, 400, `network.maskRequestHost`},
		{createV2, `{"templateID":"base","network":{"egressProxy":{"address":"x"}}}`, 400, `network.egressProxy`},
		{createV2, `{"templateID":"base","network":{"rules":{"x":[]}}}`, 400, `network.rules`},

		// Connect.
		{"POST /sandboxes/{id}/connect", `{"timeout":300}`, 200, `"sandboxID":"{id}" && "envdAccessToken":"envd-of-{id}.uid-of-{id}" && "domain":"localhost:8080" && "clientID":"6532622b"`},
		{"POST /sandboxes/{id}/connect", `{"timeout":0}`, 200, ``},
		{"POST /sandboxes/{id}/connect", `{}`, 400, `timeout`},
		{"POST /sandboxes/{id}/connect", `{"timeout":3601}`, 400, `timeout`},
		{"POST /v2/sandboxes/{id}/connect", `{}`, 200, `"sandboxID":"{id}"`},
		{"POST /v2/sandboxes/{id}/connect", ``, 200, `"sandboxID":"{id}"`},
		{"POST /v2/sandboxes/{id}/connect", `{"memory":false}`, 200, ``},
		{"POST /v2/sandboxes/{id}-6532622b/connect", `{}`, 200, `"sandboxID":"{id}"`},
		{"POST /v2/sandboxes/nosuch/connect", `{}`, 404, missing},

		// One sandbox.
		{"GET /sandboxes/{id}", ``, 200, `"state":"running" && "cpuCount":2 && "memoryMB":512 && "diskSizeMB":1024 && "envdAccessToken":"envd-of-{id}.uid-of-{id}" && "metadata":{"user":"x"} && "lifecycle":{"autoResume":false,"onTimeout":"kill"} && "network":{"allowPublicTraffic":true} && "allowInternetAccess":null`},
		{"GET /sandboxes/{id}-6532622b", ``, 200, `"sandboxID":"{id}"`},
		{"HEAD /sandboxes/{id}", ``, 200, ``},
		{"GET /sandboxes/nosuch", ``, 404, missing},
		{"GET /sandboxes/NOT%20ONE", ``, 400, `Invalid sandbox ID`},
		{"GET /sandboxes/a%2Fb", ``, 400, `Invalid sandbox ID`},
		{"DELETE /sandboxes/{id}", ``, 204, ``},
		{"DELETE /sandboxes/nosuch", ``, 404, missing},
		{"POST /sandboxes/{id}/timeout", `{"timeout":1}`, 204, ``},
		{"POST /sandboxes/{id}/timeout", `{"timeout":99999999999}`, 204, ``},
		{"POST /sandboxes/{id}/timeout", `{"timeout":-1}`, 400, `timeout`},
		{"POST /sandboxes/{id}/timeout", `{}`, 400, `timeout`},
		{"POST /sandboxes/nosuch/timeout", `{"timeout":1}`, 404, missing},
		{"POST /sandboxes/{id}/refreshes", `{"duration":60}`, 204, ``},
		{"POST /sandboxes/{id}/refreshes", ``, 204, ``},
		{"POST /sandboxes/{id}/refreshes", `{"duration":3601}`, 400, `duration`},
		{"PUT /sandboxes/{id}/network", `{}`, 204, ``},
		{"PUT /sandboxes/{id}/network", `{"allow_internet_access":true,"allowPublicTraffic":true}`, 204, ``},
		{"PUT /sandboxes/{id}/network", `{"allow_internet_access":false}`, 204, ``},
		{"PUT /sandboxes/{id}/network", `{"allowPublicTraffic":false}`, 400, `allowPublicTraffic`},
		{"PUT /sandboxes/{id}/network", `{"denyOut":["0.0.0.0/0"],"allowOut":["10.0.0.0/8","fd00::1"]}`, 204, ``},
		{"PUT /sandboxes/{id}/network", `{"denyOut":["*.example.com"]}`, 400, `denyOut: \"*.example.com\"`},
		{"PUT /sandboxes/{id}/network", `{"rules":{"example.com":[]}}`, 400, `rules`},
		{"PUT /sandboxes/{id}/network", `{"dnsServers":["1.1.1.1"]}`, 400, `dnsServers`},
		{"PUT /sandboxes/nosuch/network", `{}`, 404, missing},

		// Lists, metrics, logs.
		{"GET /sandboxes", ``, 200, `[{ && "sandboxID":"{id}" && !Token && !network`},
		{"GET /v2/sandboxes", ``, 200, `[{ && "sandboxID":"{id}" && !Token`},
		{"GET /v2/sandboxes?state=paused", ``, 200, `[]`},
		{"GET /v2/sandboxes?state=paused,running", ``, 200, `"sandboxID":"{id}"`},
		{"GET /v2/sandboxes?state=gone", ``, 400, `state`},
		{"GET /v2/sandboxes?limit=0", ``, 400, `limit`},
		{"GET /v2/sandboxes?limit=101", ``, 400, `limit`},
		{"GET /v2/sandboxes?limit=x", ``, 400, `limit`},
		{"GET /v2/sandboxes?order=up", ``, 400, `order`},
		{"GET /v2/sandboxes?nextToken=x", ``, 400, `nextToken`},
		{"GET /v2/sandboxes?metadata=x", ``, 400, `metadata`},
		{"GET /v2/sandboxes?unknown=x", ``, 200, `"sandboxID":"{id}"`},
		{"GET /v2/sandboxes?template=default", ``, 200, `"sandboxID":"{id}"`},
		{"GET /v2/sandboxes?template=other", ``, 200, `[]`},
		{"GET /v2/sandboxes?startedAfter=2000-01-01T00:00:00Z", ``, 200, `"sandboxID":"{id}"`},
		{"GET /v2/sandboxes?startedAfter=2999-01-01T00:00:00%2B01:00", ``, 200, `[]`},
		{"GET /sandboxes/{id}/metrics", ``, 200, `"timestampUnix": && "cpuUsedPct":0 && "memTotal":7 && "memTotal":8 && "memCache":0 && "diskUsed":0`},
		{"GET /sandboxes/{id}/metrics?start=1&end=2", ``, 200, `[]`},
		{"GET /sandboxes/{id}/metrics?start=2&end=1", ``, 400, `end`},
		{"GET /sandboxes/metrics?sandbox_ids={id},nosuch", ``, 200, `{"sandboxes":{"{id}":{ && "memTotal":8 && !nosuch`},
		{"GET /sandboxes/metrics", ``, 400, `sandbox_ids`},
		{"GET /sandboxes/{id}/logs", ``, 200, `"line":"{\"level\":\"info\",\"logger\":\"process\",\"message\":\"one\"}" && "message":"three" && "level":"info"`},
		{"GET /sandboxes/{id}/logs?limit=1", ``, 200, `three && !one`},
		{"GET /sandboxes/{id}/logs?start=1&limit=1", ``, 200, `one && !three`},
		{"GET /sandboxes/{id}/logs?start=99999999999999", ``, 200, `{"logEntries":[],"logs":[]}`},
		{"GET /v2/sandboxes/{id}/logs?limit=1", ``, 200, `one && !three`},
		{"GET /v2/sandboxes/{id}/logs?limit=1&direction=backward", ``, 200, `three && !one`},
		{"GET /v2/sandboxes/{id}/logs?search=w&level=debug", ``, 200, `two && !one`},
		{"GET /v2/sandboxes/{id}/logs?level=warn", ``, 200, `{"logs":[]}`},
		{"GET /v2/sandboxes/{id}/logs?cursor=1&direction=backward", ``, 200, `{"logs":[]}`},

		// Templates.
		{"GET /templates", ``, 200, `"templateID":"base" && "names":["base","default"] && "aliases":[] && "buildStatus":"ready" && "createdBy":null && "lastSpawnedAt":null`},
		{"GET /templates?teamID=A", ``, 200, `"templateID":"base"`},
		{"GET /templates?teamID=b", ``, 403, `teamID && !base`},
		{"GET /default-templates", ``, 200, `[]`},
		{"GET /templates/aliases/default", ``, 200, `{"public":false,"templateID":"base"}`},
		{"GET /templates/aliases/nosuch", ``, 404, `nosuch`},

		// What is not there.
		{"POST /sandboxes/nosuch/pause", `{}`, 404, missing},
		{"POST /sandboxes/{id}/snapshots", `{}`, 501, `--checkpoint-dir`},
		{"POST /sandboxes/{id}/fork", ``, 501, `supported`},
		{"GET /snapshots?limit=5", ``, 501, `--checkpoint-dir`},
		{"POST /v3/templates", `{}`, 501, `supported`},
		{"DELETE /templates/team%2Fsnap:default", ``, 501, `--checkpoint-dir`},
		{"GET /templates/base/tags", ``, 200, `[]`},
		{"GET /templates/x", ``, 404, `x`},
		{"GET /v2/templates", ``, 200, `"templateID":"base"`},
		{"POST /templates/tags", `{"target":"base","tags":["x"]}`, 501, `supported`},
		{"GET /volumes", ``, 501, `supported`},
		{"GET /secrets/x", ``, 501, `supported`},
		{"GET /nosuch", ``, 404, `path`},
		{"GET /sandboxes/", ``, 404, `path`},
		{"GET //sandboxes", ``, 404, `path`},
		{"GET /sandboxes/{id}/", ``, 404, `path`},
		{"PATCH /sandboxes", ``, 405, `PATCH`},
		{"GET /health", ``, 200, `ok`},
	} {
		t.Run(c.request+" "+c.body[:min(len(c.body), 60)], func(t *testing.T) {
			fill := func(s string) string { return strings.ReplaceAll(s, "{id}", idA) }
			method, path, _ := strings.Cut(fill(c.request), " ")
			w := ask(t, newServer(t, newFake(), nil), method, path, keyA, c.body)
			if w.Code != c.status {
				t.Fatalf("status %d, want %d: %s", w.Code, c.status, w.Body)
			}
			for part := range strings.SplitSeq(fill(c.want), " && ") {
				part, not := strings.CutPrefix(part, "!")
				if strings.Contains(w.Body.String(), part) == not {
					t.Errorf("body %s: %q there: %v", w.Body, part, not)
				}
			}
			if c.status == 204 && w.Body.Len() > 0 {
				t.Errorf("204 with a body: %s", w.Body)
			}
			if got := w.Header().Get("Access-Control-Allow-Origin"); got != "*" {
				t.Errorf("Access-Control-Allow-Origin %q", got)
			}
		})
	}
}

func TestHeaders(t *testing.T) {
	s := newServer(t, newFake(), nil)
	w := ask(t, s, "PATCH", "/sandboxes", keyA, "")
	if got := w.Header().Get("Allow"); got != "GET, POST" {
		t.Errorf("Allow %q", got)
	}
	w = ask(t, s, "GET", "/v2/sandboxes", keyA, "")
	if h := w.Header(); h.Get("X-Total-Running") != "1" || h["X-Next-Token"] != nil || h.Get("RateLimit-Limit") != "1000" || h.Get("RateLimit-Remaining") == "" || h.Get("RateLimit-Reset") == "" {
		t.Errorf("headers %v", h)
	}
	r := httptest.NewRequest("OPTIONS", "/v2/sandboxes", nil)
	preflight := httptest.NewRecorder()
	s.Handler().ServeHTTP(preflight, r)
	if preflight.Code != 204 {
		t.Errorf("OPTIONS: %d", preflight.Code)
	}
	for _, want := range []string{"X-API-KEY", "package_version", "sdk_runtime", "Idempotency-Key", "User-Agent"} {
		if !strings.Contains(preflight.Header().Get("Access-Control-Allow-Headers"), want) {
			t.Errorf("browsers may not send %s", want)
		}
	}
	for _, want := range []string{"X-Next-Token", "X-Total-Running", "Retry-After"} {
		if !strings.Contains(preflight.Header().Get("Access-Control-Expose-Headers"), want) {
			t.Errorf("browsers may not read %s", want)
		}
	}
}

func TestErrorsOfCreate(t *testing.T) {
	for _, c := range []struct {
		err                      error
		status                   int
		retryAfter, retry, wants string
	}{
		{fmt.Errorf("x: %w", ErrNoCapacity), 503, "5", "", "free"},
		{fmt.Errorf("x: %w", &routing.NoStartError{Reason: "ErrImagePull"}), 503, "5", "", "cannot start: ErrImagePull"},
		{ErrQuota, 429, "5", "", "limit"},
		{ErrPausedLimit, 429, "", "false", "paused"},
		{fmt.Errorf("x: %w", ErrBusy), 503, "1", "", "at once"},
		{fmt.Errorf("claim pod x: %w: y", Invalidf("the reason")), 400, "", "", "Invalid sandbox: the reason"},
		{fmt.Errorf("claim pod x: %w: y", ErrInvalid), 400, "", "", "Invalid sandbox"},
		{fmt.Errorf("%w: %w", ErrOutcomeUnknown, ErrInvalid), 500, "", "false", "Internal error"},
		{context.DeadlineExceeded, 504, "", "", "too long"},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, 503, "1", "", "control plane"},
		{fmt.Errorf("%w: %w", ErrOutcomeUnknown, syscall.ECONNREFUSED), 500, "", "false", "Internal error"},
		{fmt.Errorf("secret cause"), 500, "", "", "Internal error"},
	} {
		f := newFake()
		f.create = func(context.Context, NewSandbox) error { return c.err }
		w := ask(t, newServer(t, f, nil), "POST", "/v2/sandboxes", keyA, `{"templateID":"base"}`)
		if w.Code != c.status || w.Header().Get("Retry-After") != c.retryAfter || w.Header().Get("Should-Retry") != c.retry {
			t.Errorf("%v: %d %v", c.err, w.Code, w.Header())
		}
		if body := w.Body.String(); !strings.Contains(body, c.wants) || strings.Contains(body, "secret cause") {
			t.Errorf("%v: %s", c.err, body)
		}
	}
}

func TestPanicIsAnAnswer(t *testing.T) {
	f := newFake()
	f.create = func(context.Context, NewSandbox) error { panic("hunter2") }
	w := ask(t, newServer(t, f, nil), "POST", "/v2/sandboxes", keyA, `{"templateID":"base"}`)
	if w.Code != 500 || !strings.Contains(w.Body.String(), "ID") || strings.Contains(w.Body.String(), "hunter2") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// What the gateway is asked to make is what the client asked for.
func TestCreateAsksForWhatWasAsked(t *testing.T) {
	f := newFake()
	s := newServer(t, f, nil)
	before := time.Now()
	ask(t, s, "POST", "/v2/sandboxes", keyA,
		`{"templateID":"default","timeout":600,"metadata":{"m":"1"},"envVars":{"E":"2"},"network":{"allowPublicTraffic":false}}`)
	n := f.made[0]
	if !sandboxid.Generated(n.ID) || n.Namespace != "a" || n.Team != "a" || n.Pool != "base" || n.Metadata["m"] != "1" ||
		n.Env["E"] != "2" || !n.Private || !n.Secure {
		t.Errorf("asked for %+v", n)
	}
	if d := n.EndAt.Sub(before); d < 600*time.Second || d > 602*time.Second || n.EndAt.Nanosecond() != 0 {
		t.Errorf("ends after %v, want 600 s", d)
	}
	if len(f.moved) > 0 {
		t.Errorf("the end was moved for nothing: %v", f.moved)
	}
}

// The document's defaults are the handlers'.
func TestDefaultsAreAsDocumented(t *testing.T) {
	doc, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	v2 := doc.Components.Schemas["NewSandboxV2"].Value.Properties["timeout"].Value.Default
	v1 := doc.Components.Schemas["NewSandbox"].Value.AllOf[1].Value.Properties["timeout"].Value.Default
	connect := doc.Components.Schemas["ConnectSandboxV2"].Value.Properties["timeout"].Value.Default
	refresh := doc.Components.Schemas["SandboxRefresh"].Value.Properties["duration"].Value.Default
	if fmt.Sprint(v1, v2, connect, refresh) != fmt.Sprint(timeoutV1, timeoutV2, timeoutV2, refreshDuration) {
		t.Errorf("documented %v %v %v %v", v1, v2, connect, refresh)
	}
}
