package sandboxdclient

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/sandboxd/processpb"
)

// processes stands in for sandboxd's process service: start answers a command.
type processes struct {
	processpb.UnimplementedProcessHandler
	start func(*connect.Request[processpb.StartRequest], func(*processpb.ProcessEvent)) error
}

func (p *processes) Start(_ context.Context, q *connect.Request[processpb.StartRequest], answer *connect.ServerStream[processpb.StartResponse]) error {
	return p.start(q, func(e *processpb.ProcessEvent) { _ = answer.Send(&processpb.StartResponse{Event: e}) })
}

// serveCommands starts a sandboxd at an address that runs commands and takes files.
func serveCommands(t *testing.T, addr string, files http.HandlerFunc) *processes {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", addr, v1alpha1.SandboxdPort))
	if err != nil {
		t.Fatal(err)
	}
	p := &processes{}
	mux := http.NewServeMux()
	mux.Handle(processpb.NewProcessHandler(p))
	mux.HandleFunc("POST /files", files)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	return p
}

func stdout(text []byte) *processpb.ProcessEvent {
	return &processpb.ProcessEvent{Event: &processpb.ProcessEvent_Data{Data: &processpb.ProcessEvent_DataEvent{Output: &processpb.ProcessEvent_DataEvent_Stdout{Stdout: text}}}}
}

func exited(code int32) *processpb.ProcessEvent {
	return &processpb.ProcessEvent{Event: &processpb.ProcessEvent_End{End: &processpb.ProcessEvent_EndEvent{ExitCode: code, Exited: code >= 0, Status: "killed"}}}
}

// A command's output and exit code come back; what sandboxd did not end well is an error, and
// so is an answer that no sandboxd gives.
func TestRun(t *testing.T) {
	const addr = "127.83.9.1"
	p := serveCommands(t, addr, http.NotFound)
	a := New(fakeTokens{}, nil, func() bool { return true })
	s, pod := podAt(addr)
	for _, c := range []struct {
		what   string
		events []*processpb.ProcessEvent
		err    error
		code   int
		output string
		said   string // by the error; empty: there is none
	}{
		{"one that exits", []*processpb.ProcessEvent{stdout([]byte("a")), stdout([]byte("b")), exited(3)}, nil, 3, "ab", ""},
		{"one that is killed", []*processpb.ProcessEvent{exited(-1)}, nil, -1, "", "killed"},
		{"one whose end is not told", []*processpb.ProcessEvent{stdout([]byte("a"))}, nil, 0, "a", "does not answer any more"},
		{"one that is refused", nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("no such user")), 0, "", "no such user"},
		{"an answer that fills the memory", []*processpb.ProcessEvent{stdout(make([]byte, maxMessage+1)), exited(0)}, nil, 0, "", "larger than"},
	} {
		p.start = func(q *connect.Request[processpb.StartRequest], send func(*processpb.ProcessEvent)) error {
			if q.Msg.GetProcess().GetCmd() != "make" || q.Msg.GetProcess().GetCwd() != "/srv" || q.Header().Get(envdTokenHeader) != "i0/uid" || q.Header().Get("Authorization") == "" {
				t.Errorf("%s: sandboxd got %v, %v", c.what, q.Msg, q.Header())
			}
			for _, e := range c.events {
				send(e)
			}
			return c.err
		}
		var output strings.Builder
		code, err := a.Run(t.Context(), s, pod, Command{Program: "make", Dir: "/srv", User: "user"}, func(b []byte) { output.Write(b) })
		if code != c.code || output.String() != c.output || (err == nil) != (c.said == "") || err != nil && !strings.Contains(err.Error(), c.said) {
			t.Errorf("%s: %d, %q, %v", c.what, code, output.String(), err)
		}
	}
}

func TestPut(t *testing.T) {
	const addr = "127.83.9.2"
	var got string
	serveCommands(t, addr, func(w http.ResponseWriter, r *http.Request) {
		content, _ := io.ReadAll(r.Body)
		got = r.URL.Query().Get("username") + " " + r.URL.Query().Get("path") + " " + string(content)
		if strings.Contains(got, "full") {
			http.Error(w, "the disk is full", http.StatusInsufficientStorage)
		}
	})
	a := New(fakeTokens{}, nil, func() bool { return true })
	s, pod := podAt(addr)
	if err := a.Put(t.Context(), s, pod, "/a b", "root", strings.NewReader("content")); err != nil || got != "root /a b content" {
		t.Errorf("%v, sandboxd got %q", err, got)
	}
	if err := a.Put(t.Context(), s, pod, "/full", "root", strings.NewReader("x")); err == nil || !strings.Contains(err.Error(), "disk is full") {
		t.Errorf("a full disk: %v", err)
	}
	lost := New(fakeTokens{}, nil, func() bool { return false })
	if err := lost.Put(t.Context(), s, pod, "/a", "root", strings.NewReader("x")); err == nil {
		t.Error("a gateway without its lease wrote a file")
	}
}
