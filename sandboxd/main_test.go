package sandboxd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/sandlane/sandlane/sandboxd/filesystempb"
	"github.com/sandlane/sandlane/sandboxd/processpb"
	"github.com/sandlane/sandlane/sandboxd/rootfiles"
)

func TestMain(m *testing.M) {
	if os.Args[0] == rootfiles.Name {
		os.Exit(rootfiles.Main(os.Args[1:]))
	}
	// After an answer to a request whose body it has not read, net/http waits for half a
	// second before it closes the connection.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// patience bounds every wait of these tests; it is never waited for in full.
const patience = 20 * time.Second

// agent is a server on a real listener and clients for it.
type agent struct {
	t          testing.TB
	url        string
	client     *http.Client
	processes  processpb.ProcessClient
	filesystem filesystempb.FilesystemClient
	stop       func()
}

// newAgent starts one that answers at once unless options say otherwise.
func newAgent(t testing.TB, options Options) *agent {
	t.Helper()
	listener, err := net.Listen("tcp", cmp.Or(options.Address, "127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	if options.InitKey == nil {
		options.Open = true
	}
	if options.Grace == 0 {
		options.Grace = 50 * time.Millisecond
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- New(options).Serve(ctx, listener) }()
	transport := &http.Transport{DisableCompression: true}
	a := &agent{t: t, url: "http://" + listener.Addr().String(), client: &http.Client{Transport: transport}}
	stopped := false
	a.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-served:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(patience):
			t.Error("Serve does not return")
		}
		transport.CloseIdleConnections()
	}
	t.Cleanup(a.stop)
	a.processes = processpb.NewProcessClient(a.client, a.url, connect.WithProtoJSON(),
		connect.WithAcceptCompression("gzip", nil, nil)) // as SDKs
	a.filesystem = filesystempb.NewFilesystemClient(a.client, a.url) // binary: both codecs are used
	return a
}

// do makes a plain request; headers are pairs.
func (a *agent) do(method, path, body string, headers ...string) (*http.Response, string) {
	a.t.Helper()
	req, err := http.NewRequest(method, a.url+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := a.client.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return res, string(text)
}

// want makes a request and checks its status and that the answer holds a text.
func (a *agent) want(status int, text, method, path, body string, headers ...string) {
	a.t.Helper()
	res, got := a.do(method, path, body, headers...)
	if res.StatusCode != status || !strings.Contains(got, text) {
		a.t.Errorf("%s %s: %d %q, want %d with %q", method, path, res.StatusCode, got, status, text)
	}
	var e struct{ Code int }
	if status >= 400 && (json.Unmarshal([]byte(got), &e) != nil || e.Code != status) {
		a.t.Errorf("%s %s: %q does not repeat the code", method, path, got)
	}
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

func wantCode(t *testing.T, what string, err error, code connect.Code) {
	t.Helper()
	if connect.CodeOf(err) != code {
		t.Errorf("%s: %v, want %s", what, err, code)
	}
}

func TestRunFlags(t *testing.T) {
	var out, errs bytes.Buffer
	if code := Run(t.Context(), []string{"-version"}, &out, &errs); code != 0 || out.String() != "0.6.13\n" {
		t.Errorf("-version: %d %q", code, out.String())
	}
	for _, args := range [][]string{{"-no-such-flag"}, {"argument"}} {
		if code := Run(t.Context(), args, &out, &errs); code != 2 {
			t.Errorf("%v: %d, want 2", args, code)
		}
	}
	if code := Run(t.Context(), []string{"-address", "nowhere:x"}, &out, &errs); code != 1 {
		t.Errorf("a bad address: %d, want 1", code)
	}
}

// Without its flag nothing in the sandbox becomes root by sandboxd.
func TestSudoIsOffByDefault(t *testing.T) {
	for want, args := range map[string][]string{"": nil, "/run/sandboxd/sudo.sock": {"--sudo"}} {
		if o, _, err := parse(args, io.Discard); err != nil || o.SudoSocket != want {
			t.Errorf("%v: %q, %v, want %q", args, o.SudoSocket, err, want)
		}
	}
}
