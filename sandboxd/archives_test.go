package sandboxd

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandlane/sandlane/sandboxd/archive"
)

// command sends a signed command for the sandbox i0.
func (g *gateway) command(a *agent, name, arguments, body string, headers ...string) (int, string) {
	a.t.Helper()
	res, text := a.do("POST", "/"+name, body, append(g.commandHeaders(a, name, arguments, body), headers...)...)
	return res.StatusCode, text
}

func (g *gateway) commandHeaders(a *agent, name, arguments, body string) []string {
	a.t.Helper()
	_, answer := a.do("GET", "/init", "")
	var challenge struct{ Nonce string }
	if err := json.Unmarshal([]byte(answer), &challenge); err != nil || challenge.Nonce == "" {
		a.t.Fatalf("GET /init: %s: %v", answer, err)
	}
	message := fmt.Sprintf("sandlane %s 1\n%q\n%q\n%q\n%q\n%x\n", name, g.podUID, challenge.Nonce, "i0", arguments, sha256.Sum256([]byte(body)))
	signature := base64.StdEncoding.EncodeToString(ed25519.Sign(g.private, []byte(message)))
	return []string{"Sandlane-Sandbox-Id", "i0", "Sandlane-Arguments", arguments, "Sandlane-Init-Signature", signature}
}

// tempLayer has the files of a container in a folder.
func tempLayer(t *testing.T) *archive.Tree {
	t.Helper()
	base := t.TempDir()
	for _, dir := range []string{"home", "data"} {
		if err := os.Mkdir(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return &archive.Tree{Base: base, Mounts: []archive.Mount{{Path: "/"}, {Path: "/home"}}, Since: time.Now().Add(-time.Hour)}
}

// layered is a sandboxd whose container's files are in a folder.
func layered(t *testing.T, f Freezer) (*gateway, *agent, string) {
	g, tree := newGateway("pod-1"), tempLayer(t)
	return g, newAgent(t, g.options(Options{Freezer: f, Layer: tree})), tree.Base
}

const emptyDirs = `{"emptyDirs":["/data"]}`

// What one sandbox had is in another after a restore in parts, some of which come twice.
func TestArchiveAndRestore(t *testing.T) {
	f := &stubFreezer{}
	g, a, base := layered(t, f)
	if status, _ := g.command(a, "archive", emptyDirs, ""); status != 412 {
		t.Errorf("before /init: %d", status)
	}
	g.init(a, 204, "", `{}`)
	want := strings.Repeat("data", 100_000)
	for _, name := range []string{"home/f", "data/f", "f"} {
		if err := os.WriteFile(filepath.Join(base, name), []byte(want+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	status, data := g.command(a, "archive", emptyDirs, "")
	if status != 200 || len(data) < 3*len(want) {
		t.Fatalf("%d, %d bytes", status, len(data))
	}
	if got := fmt.Sprint(f.orders()); got != "[freeze thaw]" {
		t.Errorf("the freezer was asked for %s", got)
	}

	g, b, to := layered(t, f)
	part := func(offset int, last bool, text string) (int, string) {
		return g.command(b, "restore", fmt.Sprintf(`{"id":"r1","offset":%d,"last":%v,"emptyDirs":["/data"]}`, offset, last), text)
	}
	third := len(data) / 3
	for _, tc := range []struct {
		offset int
		last   bool
		text   string
		want   []int
	}{
		{third, false, data[third:], []int{409}},
		{0, false, data[:third], []int{202}},
		{0, false, data[:third], []int{202}},
		{third, false, data[third : 2*third], []int{202}},
		{0, false, data[:third], []int{202}},
		{2 * third, true, data[2*third:], []int{200, 202}},
		{2 * third, true, data[2*third:], []int{200, 202}},
	} {
		if status, answer := part(tc.offset, tc.last, tc.text); !slices.Contains(tc.want, status) {
			t.Errorf("the part from %d, last %v: %d %s, want %v", tc.offset, tc.last, status, answer, tc.want)
		}
	}
	if status, answer := g.command(b, "restore", `{"id":"r2","offset":0,"last":true}`, data); status != 409 {
		t.Errorf("another restore: %d %s", status, answer)
	}
	eventually(t, "the restore to end", func() bool {
		status, _ := part(2*third, true, data[2*third:])
		return status == 200
	})
	for _, name := range []string{"home/f", "data/f", "f"} {
		if text, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(text) != want+name {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
	}
	if _, answer := b.do("GET", "/init", ""); !strings.Contains(answer, `"restored":"r1"`) {
		t.Errorf("GET /init does not tell what was restored: %s", answer)
	}
	g.init(b, 204, "", `{}`)
	if status, answer := part(0, false, data[:third]); status != 409 || !strings.Contains(answer, "initialised") {
		t.Errorf("a late part: %d %s", status, answer)
	}
}

// An archive since the mark of another has what was changed after it alone, also where the clock was
// set back in between.
func TestArchiveSince(t *testing.T) {
	var ahead atomic.Int64
	started := time.Now().Add(-time.Minute).UnixNano() // the machine
	ahead.Store(started)
	clock := newWallClock(func() time.Duration { return time.Duration(ahead.Load()) }, nil, func() (clockSets, error) { return make(stubSets), nil })
	g := newGateway("pod-1")
	tree := tempLayer(t)
	a := newAgent(t, g.options(Options{Freezer: &stubFreezer{}, Layer: tree, clock: clock}))
	g.init(a, 204, "", `{}`)
	archived := func(since string) (mark, data string) {
		t.Helper()
		arguments := `{"since":` + since + `}`
		res, data := a.do("POST", "/archive", "", g.commandHeaders(a, "archive", arguments, "")...)
		if res.StatusCode != 200 {
			t.Fatalf("%d %s", res.StatusCode, data)
		}
		return res.Header.Get(markHeader), data
	}
	must(t, os.WriteFile(filepath.Join(tree.Base, "home", "first"), []byte("the file first"), 0o600))
	mark, data := archived("0")
	if !strings.Contains(data, "the file first") {
		t.Error("the first archive lacks a file")
	}
	at, err := strconv.ParseInt(mark, 10, 64)
	must(t, err)
	if late := time.Duration(at); late < 30*time.Second || late > time.Hour/2 {
		t.Errorf("the mark is %s after the machine's start", late)
	}
	later := strconv.FormatInt(at+int64(time.Hour), 10)
	if _, data := archived(later); strings.Contains(data, "the file first") {
		t.Error("an archive has a file that was not changed after its mark")
	}
	ahead.Store(started - int64(2*time.Hour)) // a file that is changed now has a time of two hours ago
	if _, data := archived(later); !strings.Contains(data, "the file first") {
		t.Error("an archive lacks a file that may have been changed while the clock was back")
	}
}

// Both are the control plane's: for one pod, process, sandbox, command, arguments and body.
func TestArchivesAreSigned(t *testing.T) {
	g, a, base := layered(t, &stubFreezer{})
	other := []*gateway{newGateway("pod-1"), {"pod-2", g.private}}
	try := func(name string) {
		t.Helper()
		for i, who := range other {
			if status, _ := who.command(a, name, `{"id":"r"}`, ""); status != 401 {
				t.Errorf("%s, another gateway %d: %d", name, i, status)
			}
		}
		for _, headers := range [][]string{{"Sandlane-Init-Signature", ""}, {"Sandlane-Arguments", `{"id":"s"}`}, {"Sandlane-Sandbox-Id", "i1"}} {
			if status, _ := g.command(a, name, `{"id":"r"}`, "", headers...); status != 401 {
				t.Errorf("%s with another %s: %d", name, headers[0], status)
			}
		}
	}
	try("restore")
	g.init(a, 204, "", `{"accessToken":"tok"}`)
	try("archive")
	if status, _ := newGateway("pod-1").command(a, "restore", `{}`, "x"); status != 409 {
		t.Errorf("a restore of what is initialised: %d", status)
	}
	if status, _ := g.command(a, "archive", emptyDirs, strings.Repeat("x", 10)); status != 400 {
		t.Errorf("an archive with a body: %d", status)
	}
	unsigned := newAgent(t, Options{Layer: &archive.Tree{Base: base, Mounts: []archive.Mount{{Path: "/"}}}, Freezer: &stubFreezer{}})
	for _, name := range []string{"archive", "restore"} {
		if status, _ := g.command(unsigned, name, `{}`, ""); status != 401 && status != 409 {
			t.Errorf("%s without a key: %d", name, status)
		}
	}
}

// While files are read no request is served and no order taken; all go on afterwards.
func TestStill(t *testing.T) {
	f := &stubFreezer{}
	g, a, base := layered(t, f)
	g.init(a, 204, "", `{}`)
	reading, more := make(chan struct{}), make(chan struct{})
	f.during = func() {
		close(reading)
		<-more
	}
	if err := os.WriteFile(filepath.Join(base, "f"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	archived := make(chan int, 1)
	go func() {
		status, _ := g.command(a, "archive", emptyDirs, "")
		archived <- status
	}()
	<-reading
	f.during = nil
	served := make(chan *http.Response, 1)
	go func() {
		res, err := a.client.Get(a.url + "/envs")
		if err != nil {
			t.Error(err)
			res = &http.Response{Body: io.NopCloser(strings.NewReader(""))}
		}
		served <- res
	}()
	select {
	case <-served:
		t.Error("a request was served meanwhile")
	case <-time.After(50 * time.Millisecond): // a request that is not held is faster
	}
	close(more)
	if status := <-archived; status != 200 {
		t.Errorf("the archive: %d", status)
	}
	res := <-served
	_ = res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("the request that waited: %d", res.StatusCode)
	}
	if status := g.order(a, "freeze", 2); status != 204 {
		t.Errorf("a freeze afterwards: %d", status)
	}
}

// What is frozen stays so while its files are read; the environment is before them.
func TestArchiveOfAFrozenSandbox(t *testing.T) {
	f := &stubFreezer{}
	g, a, base := layered(t, f)
	g.init(a, 204, "", `{"envVars":{"MINE":"mine"}}`)
	if err := os.WriteFile(filepath.Join(base, "f"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status := g.order(a, "freeze", 2); status != 204 {
		t.Fatalf("the freeze: %d", status)
	}
	f.forget()
	status, data := g.command(a, "archive", `{"emptyDirs":["/data"],"environment":true}`, "")
	line, rest, _ := strings.Cut(data, "\n")
	if status != 200 || line != `{"MINE":"mine"}` || len(rest) == 0 {
		t.Errorf("%d, the first line is %q", status, line)
	}
	if slices.Contains(f.orders(), "thaw") || slices.Contains(f.orders(), "freeze") {
		t.Errorf("the freezer was asked for %v", f.orders())
	}
	if status, plain := g.command(a, "archive", emptyDirs, ""); status != 200 || plain != rest {
		t.Errorf("without the environment: %d", status)
	}
	if status := g.order(a, "unfreeze", 3); status != 204 || !slices.Contains(f.orders(), "thaw") {
		t.Errorf("the unfreeze: %d, the freezer was asked for %v", status, f.orders())
	}
}

// What is frozen is continued when sandboxd ends, to see the signal, but for what has had
// its files read: it may go on from these in another pod. An unfreeze ends that.
func TestEndOfAFrozenSandbox(t *testing.T) {
	read := func(x *suspender) {
		if err := x.stopForSnapshot(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	}
	for name, c := range map[string]struct {
		before func(x *suspender)
		want   []string
	}{
		"frozen":                          {func(*suspender) {}, []string{"thaw"}},
		"its files were read":             {read, []string{"kill"}},
		"resumed since":                   {func(x *suspender) { read(x); _ = x.unfreeze(t.Context(), 2) }, nil},
		"resumed since, and frozen again": {func(x *suspender) { read(x); _ = x.unfreeze(t.Context(), 2); _ = x.freeze(t.Context(), 3) }, []string{"thaw"}},
		"its files were read before, while it ran, and something is left stopped": {func(x *suspender) {
			_ = x.unfreeze(t.Context(), 2)
			read(x)
			x.continueLater()
		}, []string{"thaw"}},
		"its files were read, and something was left stopped before": {func(x *suspender) { read(x); x.continueLater() }, []string{"kill"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &stubFreezer{}
			x := New(Options{Freezer: f}).suspender
			if err := x.freeze(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			c.before(x)
			f.forget()
			x.close()
			if got := f.orders(); !slices.Equal(got, c.want) {
				t.Errorf("the freezer was asked for %v, want %v", got, c.want)
			}
			if x.frozen || x.leftover != nil || !errors.Is(x.freeze(t.Context(), 9), errOlder) {
				t.Error("it goes on taking orders")
			}
		})
	}
}

// A resume comes before the reading of a frozen sandbox's files, which breaks off.
func TestUnfreezeEndsAnArchive(t *testing.T) {
	f := &stubFreezer{}
	x := New(Options{Freezer: f}).suspender
	if err := x.freeze(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	err := x.stopForSnapshot(t.Context(), func(ctx context.Context) error {
		if err := x.stopForSnapshot(ctx, nil); !errors.Is(err, errStill) {
			t.Errorf("a second reader: %v", err)
		}
		if err := x.freeze(ctx, 1); err != nil || ctx.Err() != nil {
			t.Errorf("the freeze again: %v, %v", err, ctx.Err())
		}
		if err := x.unfreeze(ctx, 2); !errors.Is(err, errStill) || ctx.Err() == nil {
			t.Errorf("an unfreeze: %v, %v", err, ctx.Err())
		}
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) || slices.Contains(f.orders(), "thaw") {
		t.Errorf("%v, the freezer was asked for %v", err, f.orders())
	}
	if err := x.unfreeze(t.Context(), 2); err != nil || !slices.Contains(f.orders(), "thaw") {
		t.Errorf("the unfreeze again: %v, the freezer was asked for %v", err, f.orders())
	}
}

// Orders, and a second archive, are refused while the sandbox is held still.
func TestStillExcludes(t *testing.T) {
	f := &stubFreezer{}
	x := New(Options{Freezer: f}).suspender
	err := x.stopForSnapshot(t.Context(), func(ctx context.Context) error {
		if err := x.freeze(ctx, 1); !errors.Is(err, errStill) {
			t.Errorf("a freeze: %v", err)
		}
		if err := x.unfreeze(ctx, 1); !errors.Is(err, errStill) {
			t.Errorf("an unfreeze: %v", err)
		}
		if err := x.stopForSnapshot(ctx, nil); !errors.Is(err, errStill) {
			t.Errorf("again: %v", err)
		}
		return nil
	})
	if err != nil || fmt.Sprint(f.orders()) != "[freeze thaw]" {
		t.Errorf("%v, the freezer was asked for %v", err, f.orders())
	}
	if err := x.freeze(t.Context(), 1); err != nil {
		t.Errorf("a freeze afterwards: %v", err)
	}
}
