package extproc

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// request makes Headers from name, value pairs, as the codec would.
func request(pairs ...string) *Headers {
	c := &call{}
	if err := newStream(context.Background(), pairs...).RecvMsg(c); err != nil {
		panic(err)
	}
	return &c.headers
}

const generated = "i0123456789abcdefghij"

func TestParseTarget(t *testing.T) {
	id57 := strings.Repeat("a", 57)
	tests := []struct {
		name      string
		authority string
		path      string
		more      []string
		want      Target
		err       error
	}{
		// Service workers
		{name: "worker of a generated ID", authority: "8000-" + generated + ".x", more: []string{"service-worker", "script"}, want: Target{generated, 8000, FormHost, "/"}},
		{name: "worker of a name", authority: "8000-hello.x", more: []string{"service-worker", "script"}, err: errWorker},
		{name: "worker by headers", authority: "localhost", more: []string{"service-worker", "script", "x-sandbox-id", generated, "x-sandbox-port", "8000"}, err: errWorker},
		{name: "worker by path", authority: "localhost", path: "/sandboxes/" + generated + "/8000/w.js", more: []string{"service-worker", "script"}, err: errWorker},
		// 1. host
		{name: "host", authority: "8000-hello.localhost", want: Target{"hello", 8000, FormHost, "/"}},
		{name: "host with port", authority: "8000-hello.localhost:8080", want: Target{"hello", 8000, FormHost, "/"}},
		{name: "host upper-case domain", authority: "8000-hello.LocalHost", want: Target{"hello", 8000, FormHost, "/"}},
		{name: "host with dashes in the ID", authority: "8000-my-box-1.e.example.com", want: Target{"my-box-1", 8000, FormHost, "/"}},
		{name: "host generated ID", authority: "49983-" + generated + ".e2b.app", want: Target{generated, 49983, FormHost, "/"}},
		{name: "host generated ID and client ID", authority: "49983-" + generated + "-6532622b.e2b.app", want: Target{generated, 49983, FormHost, "/"}},
		{name: "host longer than generated", authority: "1-" + generated + "k.e2b.app", want: Target{generated + "k", 1, FormHost, "/"}},
		{name: "host longest ID", authority: "65535-" + id57 + ".x", want: Target{id57, 65535, FormHost, "/"}},
		{name: "host ignores routing headers", authority: "8000-hello.localhost", more: []string{"x-sandbox-id", "other", "x-sandbox-port", "1"}, want: Target{"hello", 8000, FormHost, "/"}},
		{name: "host ignores broken routing headers", authority: "8000-hello.localhost", more: []string{"e2b-sandbox-id", "A", "e2b-sandbox-id", "B"}, want: Target{"hello", 8000, FormHost, "/"}},
		{name: "host keeps path", authority: "8000-hello.localhost", path: "/sandboxes/other/9/x?q", want: Target{"hello", 8000, FormHost, "/sandboxes/other/9/x?q"}},
		{name: "host is a sandbox of numbers", authority: "8000-1.2.3.4", want: Target{"1", 8000, FormHost, "/"}},
		{name: "host OPTIONS *", authority: "8000-hello.localhost", path: "*", want: Target{"hello", 8000, FormHost, "*"}},
		{name: "host 58 characters", authority: "8000-" + id57 + "a.x", err: errID},
		{name: "host upper-case ID", authority: "8000-Hello.LOCALHOST", want: Target{"hello", 8000, FormHost, "/"}},
		{name: "host upper-case generated ID and client ID", authority: "49983-" + strings.ToUpper(generated) + "-6532622B.E2B.app", want: Target{generated, 49983, FormHost, "/"}},
		{name: "host unicode", authority: "8000-h\u00e9llo.localhost", err: errHost},
		{name: "host trailing dash", authority: "8000-hello-.localhost", err: errID},
		{name: "host leading dash", authority: "8000--hello.localhost", err: errID},
		{name: "host generated and bare dash", authority: "8000-" + generated + "-.x", err: errID},
		{name: "host underscore in the ID", authority: "8000-a_b.localhost", err: errID},
		{name: "host no ID", authority: "8000-.localhost", err: errID},
		{name: "host no port", authority: "-hello.localhost", err: errPort},
		{name: "host no dash", authority: "hello.localhost", err: errHost},
		{name: "host port 0", authority: "0-hello.localhost", err: errPort},
		{name: "host port 65536", authority: "65536-hello.localhost", err: errPort},
		{name: "host port 080", authority: "08000-hello.localhost", err: errPort},
		{name: "host port +8000", authority: "+8000-hello.localhost", err: errHost},
		{name: "host port word", authority: "http-hello.localhost", err: errPort},
		{name: "host no domain", authority: "8000-hello", err: errHost},
		{name: "host empty domain", authority: "8000-hello.", err: errHost},
		{name: "host final dot", authority: "8000-hello.localhost.", want: Target{"hello", 8000, FormHost, "/"}},
		{name: "host final dot and port", authority: "8000-hello.localhost.:80", want: Target{"hello", 8000, FormHost, "/"}},
		{name: "host two final dots", authority: "8000-hello.localhost..", err: errHost},
		{name: "host two dots", authority: "8000-hello..localhost", err: errHost},
		{name: "host user info", authority: "8000-a.localhost@8000-b.localhost", err: errHost},
		{name: "host port tricks", authority: "8000-a.localhost:80@8000-b.localhost", err: errHost},
		{name: "host two ports", authority: "8000-a.localhost:80:81", err: errHost},
		{name: "host empty port", authority: "8000-a.localhost:", err: errHost},
		{name: "host slash", authority: "8000-a.localhost/8000-b", err: errHost},
		{name: "host space", authority: "8000-a.localhost 8000-b", err: errHost},
		{name: "host NUL", authority: "8000-a\x00b.localhost", err: errHost},
		{name: "host encoded", authority: "8000-a%2eb.localhost", err: errHost},
		{name: "host comma", authority: "8000-a.localhost,8000-b.localhost", err: errHost},
		{name: "host too long", authority: "8000-a" + strings.Repeat(".abcdefghi", 26), err: errHost},
		{name: "host empty", authority: "", err: errHost},

		// 2. headers
		{name: "headers", authority: "localhost", more: []string{"x-sandbox-id", "hello", "x-sandbox-port", "8000"}, want: Target{"hello", 8000, FormHeaders, "/"}},
		{name: "E2b headers", authority: "sandbox.e2b.app", more: []string{"e2b-sandbox-id", generated + "-6532622b", "e2b-sandbox-port", "49983"}, want: Target{generated, 49983, FormHeaders, "/"}},
		{name: "headers on IPv4", authority: "127.0.0.1:8080", more: []string{"x-sandbox-id", "a", "x-sandbox-port", "1"}, want: Target{"a", 1, FormHeaders, "/"}},
		{name: "headers on IPv6", authority: "[::1]:8080", more: []string{"x-sandbox-id", "a", "x-sandbox-port", "1"}, want: Target{"a", 1, FormHeaders, "/"}},
		{name: "headers on bare IPv6", authority: "[2001:db8::1]", more: []string{"x-sandbox-id", "a", "x-sandbox-port", "1"}, want: Target{"a", 1, FormHeaders, "/"}},
		{name: "headers before path", authority: "localhost", path: "/sandboxes/b/9/x", more: []string{"x-sandbox-id", "a", "x-sandbox-port", "1"}, want: Target{"a", 1, FormHeaders, "/sandboxes/b/9/x"}},
		{name: "both pairs agree", authority: "localhost", more: []string{"x-sandbox-id", generated, "x-sandbox-port", "1", "e2b-sandbox-id", generated + "-x", "e2b-sandbox-port", "1"}, want: Target{generated, 1, FormHeaders, "/"}},
		{name: "IDs disagree", authority: "localhost", more: []string{"x-sandbox-id", "a", "x-sandbox-port", "1", "e2b-sandbox-id", "b", "e2b-sandbox-port", "1"}, err: errDisagree},
		{name: "ports disagree", authority: "localhost", more: []string{"x-sandbox-id", "a", "x-sandbox-port", "1", "e2b-sandbox-id", "a", "e2b-sandbox-port", "2"}, err: errDisagree},
		{name: "no port header", authority: "localhost", more: []string{"x-sandbox-id", "a"}, err: errMissing},
		{name: "no ID header", authority: "localhost", more: []string{"e2b-sandbox-port", "1"}, err: errMissingID},
		{name: "mixed pair", authority: "localhost", more: []string{"x-sandbox-id", "a", "e2b-sandbox-port", "1"}, err: errMissingID},
		{name: "one pair broken", authority: "localhost", more: []string{"x-sandbox-id", "a", "x-sandbox-port", "1", "e2b-sandbox-id", "a"}, err: errMissing},
		{name: "repeated ID", authority: "localhost", more: []string{"x-sandbox-id", "a", "x-sandbox-id", "a", "x-sandbox-port", "1"}, err: errDuplicate},
		{name: "repeated port", authority: "localhost", more: []string{"x-sandbox-id", "a", "x-sandbox-port", "1", "x-sandbox-port", "2"}, err: errDuplicate},
		{name: "joined ID", authority: "localhost", more: []string{"x-sandbox-id", "a,b", "x-sandbox-port", "1"}, err: errID},
		{name: "joined port", authority: "localhost", more: []string{"x-sandbox-id", "a", "x-sandbox-port", "1,1"}, err: errPort},
		{name: "empty ID", authority: "localhost", more: []string{"x-sandbox-id", "", "x-sandbox-port", "1"}, err: errID},
		{name: "spaces", authority: "localhost", more: []string{"x-sandbox-id", " a", "x-sandbox-port", "1"}, err: errID},
		{name: "upper case", authority: "localhost", more: []string{"x-sandbox-id", "A", "x-sandbox-port", "1"}, err: errID},
		{name: "trailing dot", authority: "localhost", more: []string{"x-sandbox-id", "a.", "x-sandbox-port", "1"}, err: errID},
		{name: "58 characters", authority: "localhost", more: []string{"x-sandbox-id", id57 + "a", "x-sandbox-port", "1"}, err: errID},
		{name: "header port 08000", authority: "localhost", more: []string{"x-sandbox-id", "a", "x-sandbox-port", "08000"}, err: errPort},
		{name: "header port -1", authority: "localhost", more: []string{"x-sandbox-id", "a", "x-sandbox-port", "-1"}, err: errPort},
		{name: "header port Arabic digits", authority: "localhost", more: []string{"x-sandbox-id", "a", "x-sandbox-port", "\u0661"}, err: errPort},
		{name: "other host", authority: "gateway.example.com", more: []string{"x-sandbox-id", "a", "x-sandbox-port", "1"}, err: errHost},
		{name: "localhost, complete", authority: "localhost.:8080", more: []string{"x-sandbox-id", "a", "x-sandbox-port", "1"}, want: Target{"a", 1, FormHeaders, "/"}},
		{name: "shared host, complete", authority: "Sandbox.e2b.app.", more: []string{"x-sandbox-id", "a", "x-sandbox-port", "1"}, want: Target{"a", 1, FormHeaders, "/"}},
		{name: "address with a final dot", authority: "127.0.0.1.", path: "/sandboxes/a/1", want: Target{"a", 1, FormPath, "/"}},
		{name: "IPv6 with a final dot", authority: "[::1].", err: errHost},
		{name: "localhost lookalike", authority: "localhost.evil.com", more: []string{"x-sandbox-id", "a", "x-sandbox-port", "1"}, err: errHost},
		{name: "sandbox without domain", authority: "sandbox", more: []string{"x-sandbox-id", "a", "x-sandbox-port", "1"}, err: errHost},
		{name: "IPv6 with zone", authority: "[fe80::1%25eth0]:80", err: errHost},
		{name: "IPv6 port tricks", authority: "[::1]8080", err: errHost},
		{name: "IPv6 unclosed", authority: "[::1", err: errHost},
		{name: "IPv6 bare", authority: "::1", err: errHost},
		{name: "IPv4 in brackets", authority: "[127.0.0.1]:80", err: errHost},
		{name: "bracketed host", authority: "[localhost]:80", err: errHost},
		{name: "a namespace", authority: "localhost", more: []string{"x-sandbox-id", "a", "x-sandbox-port", "1", "x-sandbox-namespace", "default"}, err: errNamespace},
		{name: "an empty namespace", authority: "localhost", more: []string{"x-sandbox-id", "a", "x-sandbox-port", "1", "x-sandbox-namespace", ""}, err: errNamespace},
		{name: "a namespace in the host form", authority: "8000-hello.localhost", more: []string{"x-sandbox-namespace", "default"}, err: errNamespace},
		{name: "a namespace in the path form", authority: "localhost", path: "/sandboxes/hello/8000", more: []string{"x-sandbox-namespace", "default"}, err: errNamespace},

		// 3. path
		{name: "path", authority: "localhost", path: "/sandboxes/hello/8000/a/b?x=1&y=/", want: Target{"hello", 8000, FormPath, "/a/b?x=1&y=/"}},
		{name: "path without rest", authority: "localhost:80", path: "/sandboxes/hello/8000", want: Target{"hello", 8000, FormPath, "/"}},
		{name: "path with slash", authority: "localhost", path: "/sandboxes/hello/8000/", want: Target{"hello", 8000, FormPath, "/"}},
		{name: "path query only", authority: "localhost", path: "/sandboxes/hello/8000?a=/b", want: Target{"hello", 8000, FormPath, "/?a=/b"}},
		{name: "path generated", authority: "10.0.0.1", path: "/sandboxes/" + generated + "-x/1/", want: Target{generated, 1, FormPath, "/"}},
		{name: "path keeps what follows", authority: "localhost", path: "/sandboxes/a/1//x%2Fy/./z/../%2520%C3?%2F//..", want: Target{"a", 1, FormPath, "//x%2Fy/./z/../%2520%C3?%2F//.."}},
		{name: "path keeps what cannot be decoded", authority: "localhost", path: "/sandboxes/a/1/100%/%zz", want: Target{"a", 1, FormPath, "/100%/%zz"}},
		{name: "path doubled slash after the port", authority: "localhost", path: "/sandboxes/a/1//", want: Target{"a", 1, FormPath, "//"}},
		{name: "path encoded dots in the query", authority: "localhost", path: "/sandboxes/a/1?/../../b/2", want: Target{"a", 1, FormPath, "/?/../../b/2"}},
		{name: "path dot segments", authority: "localhost", path: "/sandboxes/a/1/../../b/2/", err: errPath},
		{name: "path dot segment", authority: "localhost", path: "/sandboxes/a/1/..", err: errPath},
		{name: "path dot segments to the same", authority: "localhost", path: "/sandboxes/a/1/../1/x", want: Target{"a", 1, FormPath, "/../1/x"}},
		{name: "path other port", authority: "localhost", path: "/sandboxes/a/1/../49983/x", err: errPath},
		{name: "path encoded dots", authority: "localhost", path: "/sandboxes/a/1/%2e%2E/2/", err: errPath},
		{name: "path encoded slashes", authority: "localhost", path: "/sandboxes/a/1/..%2f..%2fb/2/", err: errPath},
		{name: "path backslashes", authority: "localhost", path: `/sandboxes/a/1/..\..\b/2/`, err: errPath},
		{name: "path encoded backslashes", authority: "localhost", path: "/sandboxes/a/1/..%5c..%5Cb/2/", err: errPath},
		{name: "path encoded twice", authority: "localhost", path: "/sandboxes/a/1/%252e%252e/2/", err: errPath},
		{name: "path out of the API", authority: "localhost", path: "/sandboxes/a/timeout/../1/", err: errPath},
		{name: "path out of another", authority: "localhost", path: "/templates/..%2fsandboxes/a/1/", err: errPath},
		{name: "path nested", authority: "localhost", path: "/sandboxes/a/1/sandboxes/b/2/", want: Target{"a", 1, FormPath, "/sandboxes/b/2/"}},
		{name: "path encoded slash in ID", authority: "localhost", path: "/sandboxes/a%2fb/8000/", err: errID},
		{name: "path encoded NUL in ID", authority: "localhost", path: "/sandboxes/a%00/8000/", err: errID},
		{name: "path dot dot ID", authority: "localhost", path: "/sandboxes/../8000/", err: errID},
		{name: "path encoded dot ID", authority: "localhost", path: "/sandboxes/%2e%2e/8000/", err: errID},
		{name: "path empty ID", authority: "localhost", path: "/sandboxes//8000/", err: errID},
		{name: "path encoded digit", authority: "localhost", path: "/sandboxes/a/%38000/", err: errPort},
		{name: "path encoded slash in port", authority: "localhost", path: "/sandboxes/a/8000%2fx", err: errPort},
		{name: "path encoded NUL in port", authority: "localhost", path: "/sandboxes/a/8000%00/", err: errPort},
		{name: "path port parameter", authority: "localhost", path: "/sandboxes/a/8000;x/", err: errPort},
		{name: "path port 65536", authority: "localhost", path: "/sandboxes/a/65536/", err: errPort},
		{name: "path port 08000", authority: "localhost", path: "/sandboxes/a/08000/", err: errPort},
		{name: "path port -1", authority: "localhost", path: "/sandboxes/a/-1/", err: errPort},
		{name: "path upper-case ID", authority: "localhost", path: "/sandboxes/A/8000/", err: errID},
		{name: "path backslash", authority: "localhost", path: `/sandboxes/a/8000\x/`, err: errPort},
		{name: "path only on shared hosts", authority: "8000-b.localhost", path: "/sandboxes/a/8000/", want: Target{"b", 8000, FormHost, "/sandboxes/a/8000/"}},

		// no target
		{name: "nothing", authority: "localhost", err: ErrNoTarget},
		{name: "REST API", authority: "api.e2b.app", path: "/sandboxes", err: ErrNoTarget},
		{name: "REST API ignores routing", authority: "api.e2b.app", path: "/sandboxes/a/8000/", more: []string{"x-sandbox-id", "a", "x-sandbox-port", "1"}, err: ErrNoTarget},
		{name: "REST API on a shared host", authority: "localhost", path: "/sandboxes/a/timeout", err: ErrNoTarget},
		{name: "REST API v2", authority: "localhost", path: "/v2/sandboxes/a/8000", err: ErrNoTarget},
		{name: "one sandbox", authority: "localhost", path: "/sandboxes/a", err: ErrNoTarget},
		{name: "one sandbox with slash", authority: "localhost", path: "/sandboxes/a/", err: ErrNoTarget},
		{name: "encoded separators", authority: "localhost", path: "/sandboxes/a%2f8000%2fx", err: errPath},
		{name: "doubled slash", authority: "localhost", path: "//sandboxes/a/8000/", err: errPath},

		// paths that are none
		{name: "absolute form", authority: "localhost", path: "http://8000-b.localhost/", err: errPath},
		{name: "no path", authority: "8000-a.localhost", path: "-", err: errPath},
		{name: "control character", authority: "8000-a.localhost", path: "/a\x00b", err: errPath},
		{name: "line break", authority: "8000-a.localhost", path: "/a\r\nHost: b", err: errPath},
		{name: "fragment", authority: "localhost", path: "/sandboxes/a/8000#/b", err: errPath},
		{name: "two hosts", authority: "8000-a.localhost", more: []string{":authority", "8000-b.localhost"}, err: errDuplicate},
		{name: "two paths", authority: "8000-a.localhost", more: []string{":path", "/b"}, err: errDuplicate},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := tt.path
			if path == "" {
				path = "/"
			}
			got, err := ParseTarget(request(append([]string{":authority", tt.authority, ":path", path}, tt.more...)...))
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if got != tt.want {
				t.Errorf("target %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestValidIDMatchesPattern(t *testing.T) {
	pattern := regexp.MustCompile(v1alpha1.IDPattern)
	for _, id := range []string{
		"", "a", "-", "a-", "-a", "a-b", "a--b", "A", "aB", "a.b", "a_b", "\u00e9", "a\n", "0", "9z",
		strings.Repeat("a", 57), strings.Repeat("a", 58), strings.Repeat("-", 57), "a" + strings.Repeat("-", 55) + "b",
	} {
		if got, want := validID(id), pattern.MatchString(id); got != want {
			t.Errorf("validID(%q) = %v, the pattern says %v", id, got, want)
		}
	}
}

func TestIsGenerated(t *testing.T) {
	for id, want := range map[string]bool{
		generated: true, generated + "k": false, generated[:20]: false, "j" + generated[1:]: false,
		"i0123456789-bcdefghij": false, "": false,
	} {
		if got := isGenerated(id); got != want {
			t.Errorf("isGenerated(%q) = %v", id, got)
		}
	}
}

// FuzzParseTarget holds what must be true of every accepted target.
func FuzzParseTarget(f *testing.F) {
	pattern := regexp.MustCompile(v1alpha1.IDPattern)
	f.Fuzz(func(t *testing.T, authority, path, e2bID, e2bPort, id, port string, present uint8) {
		h := &Headers{Authority: Field{authority, 1}, Path: Field{path, 1}}
		for i, set := range []struct {
			f *Field
			v string
		}{{&h.E2BID, e2bID}, {&h.E2BPort, e2bPort}, {&h.ID, id}, {&h.Port, port}} {
			*set.f = Field{set.v, int(present >> (2 * i) & 3)}
		}
		got, err := ParseTarget(h)
		if err != nil {
			var bad *BadTargetError
			if !errors.Is(err, ErrNoTarget) && !errors.As(err, &bad) {
				t.Fatalf("untyped error %v", err)
			}
			if got != (Target{}) {
				t.Fatalf("a target with an error: %+v", got)
			}
			return
		}
		if !pattern.MatchString(got.ID) || len(got.ID) > 57 {
			t.Fatalf("accepted ID %q", got.ID)
		}
		if got.Port == 0 {
			t.Fatal("accepted port 0")
		}
		if got.Path != "*" && !strings.HasPrefix(got.Path, "/") {
			t.Fatalf("path %q is not rooted", got.Path)
		}
		if got.Form != FormPath && got.Path != path {
			t.Fatalf("path %q was rewritten to %q in form %d", path, got.Path, got.Form)
		}
		if got.Form == FormPath && !strings.HasSuffix(path, strings.TrimPrefix(got.Path, "/")) {
			t.Fatalf("%q was rewritten to %q", path, got.Path)
		}
		// The target names what the request names, in every form.
		for _, again := range []*Headers{
			{Authority: Field{got.String() + ".example.com:443", 1}, Path: Field{got.Path, 1}},
			{Authority: Field{"localhost", 1}, Path: Field{got.Path, 1}, ID: Field{got.ID, 1}, Port: Field{strings.SplitN(got.String(), "-", 2)[0], 1}},
		} {
			second, err := ParseTarget(again)
			if err != nil || second.ID != got.ID || second.Port != got.Port || second.Path != got.Path {
				t.Fatalf("%+v renders to %+v, which parses to %+v, %v", got, again, second, err)
			}
		}
		if got.Form == FormHost && classifyMust(t, authority) != hostSandbox || got.Form != FormHost && classifyMust(t, authority) != hostShared {
			t.Fatalf("form %d on host %q", got.Form, authority)
		}
	})
}

func classifyMust(t *testing.T, authority string) hostKind {
	kind, _, err := classifyHost(authority)
	if err != nil {
		t.Fatalf("accepted a target on host %q: %v", authority, err)
	}
	return kind
}
