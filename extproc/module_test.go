package extproc

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sandlane/sandlane/test/cmodule"
)

// Envoy's module must never see another target in a request than ParseTarget does, and
// sandboxd's parser never a control path in one that ExtProc lets through: all three are asked
// for the same random requests, most of which are nearly right. What the module is unsure of
// it may leave alone.
func TestModuleSeesTheSameTarget(t *testing.T) {
	total := 100_000
	if os.Getenv("SANDLANE_FUZZ") == "full" {
		total = 10_000_000
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	g := &generator{rand.New(rand.NewPCG(seed, 0))}
	module := cmodule.Start(t, cmodule.Build(t, cmodule.Sanitized...), "parse")
	const batch = 200 // which both pipes hold
	answered := 0
	for range total / batch {
		var all []byte
		requests := make([][]string, batch)
		for i := range requests {
			requests[i] = g.request()
			all = cmodule.AppendRequest(all, requests[i]...)
		}
		all = append(all, cmodule.Flush)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			module.Send(t, all)
		}()
		for _, pairs := range requests {
			if err := sandboxdAgrees(pairs); err != nil {
				t.Fatalf("seed %d: %q: %v", seed, pairs, err)
			}
			if module.Byte(t) == 0 {
				continue
			}
			answered++
			id, port := module.Text(t), module.Text(t)
			if err := agrees(pairs, id, port); err != nil {
				t.Fatalf("seed %d: the module takes %q for %s of %s: %v", seed, pairs, port, id, err)
			}
		}
		<-sent
	}
	if answered < total/50 {
		t.Errorf("of %d requests the module sees a target in %d: the generator makes too few", total, answered)
	}
	t.Logf("%d of %d requests have a target for the module", answered, total)
}

// agrees says what ParseTarget, the control paths or authorisation make of a request
// that the module does not.
func agrees(pairs []string, id, port string) error {
	h := request(pairs...)
	target, err := ParseTarget(h)
	switch {
	case err != nil:
		return err
	case target.ID != id || strconv.Itoa(int(target.Port)) != port:
		return fmt.Errorf("it is for %s", target)
	case target.Form == FormPath || target.Path != h.Path.Value:
		return fmt.Errorf("the path becomes %q", target.Path)
	case h.APIKey.Count > 0 || h.Pool.Count > 0 || h.Env.Count > 0:
		return fmt.Errorf("it names a key, a pool or an env")
	case h.Cookie.Value != "":
		return fmt.Errorf("it has a cookie of a port")
	}
	if at, _, _ := strings.Cut(h.Path.Value, "?"); at == LinkPath {
		return fmt.Errorf("it is a link")
	}
	if target.Port == sandboxdPort {
		if h.Upgrade.Count > 0 {
			return errUpgrade
		}
		if reserved, err := controlPath(target.Path); err != nil || reserved != "" {
			return fmt.Errorf("control path %q: %w", reserved, err)
		}
	}
	return nil
}

// sandboxdAgrees reads the path that a request reaches sandboxd with as sandboxd does, by
// net/http and a ServeMux, whose redirects count too.
func sandboxdAgrees(pairs []string) error {
	target, err := ParseTarget(request(pairs...))
	if err != nil || target.Port != sandboxdPort {
		return nil
	}
	if reserved, err := controlPath(target.Path); err != nil || reserved != "" {
		return nil
	}
	for _, method := range []string{http.MethodPost, http.MethodGet, "X"} {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + target.Path + " HTTP/1.1\r\nHost: x\r\n\r\n")))
		if err != nil {
			continue // sandboxd answers 400
		}
		if _, pattern := sandboxdPaths.Handler(r); pattern != "" {
			return fmt.Errorf("sandboxd takes %q for %s", target.Path, pattern)
		}
		if clean := path.Clean(strings.ReplaceAll(r.URL.Path, `\`, "/")); slices.Contains(controlPaths, clean) {
			return fmt.Errorf("sandboxd may take %q for %s", target.Path, clean)
		}
	}
	return nil
}

var controlPaths = []string{"/archive", "/collapse", "/freeze", "/fsfreeze", "/fsthaw", "/init", "/restore", "/unfreeze", "/upgrade"}

var sandboxdPaths = func() *http.ServeMux {
	mux := http.NewServeMux()
	for _, p := range controlPaths {
		mux.HandleFunc(p, http.NotFound)
	}
	return mux
}()

// generator makes requests out of fragments, and changes a byte now and then.
type generator struct{ *rand.Rand }

func (g *generator) one(of ...string) string { return of[g.IntN(len(of))] }

func (g *generator) request() []string {
	pairs := []string{":path", g.dirty(g.path()), ":authority", g.dirty(g.authority())}
	for range g.IntN(3) {
		x := g.one("x", "x", "e2b")
		switch g.IntN(8) {
		case 0:
			pairs = append(pairs, g.one("x-sandbox-pool", "x-sandbox-env", "x-sandbox-namespace", "x-sandbox-api-key", "x-sandbox-idx", "e2b-traffic-access-token", "x-sandbox"), g.dirty("default/echo"))
		case 1:
			pairs = append(pairs, x+"-sandbox-id", g.dirty(g.id()))
		case 2:
			pairs = append(pairs, x+"-sandbox-port", g.dirty(g.port()))
		default:
			pairs = append(pairs, x+"-sandbox-port", g.dirty(g.port()), x+"-sandbox-id", g.dirty(g.id()))
		}
	}
	if g.IntN(20) == 0 {
		pairs = append(pairs, "upgrade", g.one("websocket", "tcp", "SPDY/3.1", ""))
	}
	if g.IntN(20) == 0 {
		pairs = append(pairs, "service-worker", g.one("script", ""))
	}
	if g.IntN(10) == 0 {
		pairs = append(pairs, "cookie", g.dirty(g.one("a=b", "sandlane-port=x", "a=s; __Host-sandlane-port=x", "sandlane-sandlane-port", "sandlane", "")))
	}
	if g.IntN(40) == 0 {
		pairs = append(pairs, g.one(":path", ":authority"), g.one("/", "localhost", ""))
	}
	if g.IntN(40) == 0 {
		pairs = pairs[2:]
	}
	return pairs
}

func (g *generator) id() string {
	if g.IntN(2) == 0 {
		return g.one("hello", "a-b", generated)
	}
	id := g.one("hello", "a", "a-b", "i", generated, generated+"-6532622b", generated+"-", generated+"k", generated+"k-x",
		strings.Repeat("a", 57), strings.Repeat("a", 58), "-a", "a-", "", "I0123456789abcdefghij-x", "i0123456789abcdefgh-j-x")
	if g.IntN(4) == 0 {
		id += g.one("0", "-", "-a", "A", "_")
	}
	return id
}

func (g *generator) port() string {
	if g.IntN(2) == 0 {
		return g.one("8000", "49983")
	}
	return g.one("80", "8000", "49983", "49983", "65535", "65536", "0", "080", "1", "99999", "655350", "", "+1", " 80", "4998", "x")
}

func (g *generator) authority() string {
	switch g.IntN(4) {
	case 0:
		return "localhost:8080"
	case 1:
		return g.one("localhost", "LocalHost", "127.0.0.1", "127.0.0.01", "1.2.3", "256.1.1.1", "1.2.3.4.", "0.0.0.0", "[::1]", "sandbox.e2b.app", "SANDBOX.x",
			"api.e2b.app", "API.x", "localhost.", "sandbox", "sandbox.", "") + g.one("", "", ":8080", ":0", ":", ":080", ":1:2")
	default:
		return g.port() + g.one("-", "-", "-", "", "--", ".") + g.id() + g.one(".", ".", ".", "", "..") + g.one("e2b.app", "localhost", "x", "2.3.4", "", "a_b", strings.Repeat("abcdefghi.", 25)+"x") + g.one("", "", ":8080", ":x")
	}
}

func (g *generator) path() string {
	if g.IntN(3) == 0 {
		return g.one("/", "/a/b?c", LinkPath, LinkPath+"?ticket=x", "/files", "/health", "/process.Process/Start", "/a%20b")
	}
	if g.IntN(20) == 0 {
		return g.one("*", "", "x", "/sandboxes/hello/80/x", "/sandboxes/"+generated+"/49983/init")
	}
	var p strings.Builder
	for range g.IntN(4) {
		p.WriteString(g.one("/", "/", "/", "//", "/.", "/..", `\`, "/%2e", "/%2F", "%", "/./", "/%5c", "/%252e%252E", "/..%255C", ""))
		p.WriteString(g.one("init", "freeze", "collapse", "upgrade", "archive", "restore", "files", "health", "process.Process", "Start", "a", "in%69t", "", "INIT", "fsthaw", "%2569nit", "..", "%2E."))
	}
	if p.Len() == 0 || g.IntN(8) == 0 {
		p.WriteString("/")
	}
	return p.String() + g.one("", "", "?a=b", "?/init", "#x", "?%zz", "?")
}

// dirty changes a byte of one text in thirty.
func (g *generator) dirty(s string) string {
	if g.IntN(30) > 0 || s == "" {
		return s
	}
	b := []byte(s)
	b[g.IntN(len(b))] = g.one(" ", "\x00", "\x7f", "\xff", "A", "z", "0", "-", ".", "/", "%", "?", "#", ":", "@", ",")[0]
	return string(b)
}
