package check

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/coder/websocket"

	"github.com/sandlane/sandlane/sandboxd/processpb"
)

const key = "e2b_0123"

// installation is two gateways that share sandboxes, with one fault at a time.
type installation struct {
	processpb.UnimplementedProcessHandler
	fault string

	mu    sync.Mutex
	live  map[string]bool
	ended []string
	files map[string]string
}

// gateway is the handler of gateway number n.
func (f *installation) gateway(n int) http.Handler {
	processPath, process := processpb.NewProcessHandler(f)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		second := func(fault string) bool { return n == 1 && f.fault == fault }
		if id := r.Header.Get("X-Sandbox-Id"); id != "" {
			first := r.Header.Get("X-Sandbox-Pool") == "echo" && r.Header.Get("X-Sandbox-Api-Key") == key
			switch {
			case !f.reach(id, first) && !second("reached after its end"), second("unreachable"):
				http.Error(w, "no such sandbox", http.StatusBadGateway)
			case strings.HasPrefix(r.URL.Path, processPath):
				process.ServeHTTP(w, r)
			case r.URL.Path == "/files":
				f.file(w, r, second("other files"))
			case f.fault == "the program fails":
				http.Error(w, "no such page", http.StatusInternalServerError)
			case r.URL.Path == "/ws":
				f.echo(w, r, second("other messages"))
			}
			return
		}
		f.rest(w, r, second("answers without a key"))
	})
}

func (f *installation) reach(id string, first bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.live[id]; !known && first {
		f.live[id] = true
	}
	return f.live[id]
}

// rest is the REST API.
func (f *installation) rest(w http.ResponseWriter, r *http.Request, open bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Header.Get("X-Api-Key") != key && !open {
		http.Error(w, "key", http.StatusUnauthorized)
		return
	}
	switch r.Method {
	case http.MethodPost:
		f.live["made"] = true
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"sandboxID":"made","envdAccessToken":"token"}`)
	case http.MethodDelete:
		id := strings.TrimPrefix(r.URL.Path, "/sandboxes/")
		f.live[id] = false
		f.ended = append(f.ended, id)
		w.WriteHeader(http.StatusNoContent)
	}
}

func (f *installation) file(w http.ResponseWriter, r *http.Request, other bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := r.URL.Query().Get("path")
	if r.Method == http.MethodPost {
		text, _ := io.ReadAll(r.Body)
		f.files[name] = string(text)
		return
	}
	if other {
		name = "none"
	}
	_, _ = io.WriteString(w, f.files[name])
}

func (f *installation) echo(w http.ResponseWriter, r *http.Request, other bool) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = c.CloseNow() }()
	for {
		kind, message, err := c.Read(r.Context())
		if err != nil {
			return
		}
		if other {
			message = []byte("hello")
		}
		if c.Write(r.Context(), kind, message) != nil {
			return
		}
	}
}

// Start is sandboxd's command.
func (f *installation) Start(_ context.Context, r *connect.Request[processpb.StartRequest], out *connect.ServerStream[processpb.StartResponse]) error {
	if r.Header().Get("X-Access-Token") != "token" {
		return connect.NewError(connect.CodeUnauthenticated, nil)
	}
	text, code := "42\n", int32(0)
	if f.fault == "commands fail" {
		code = 1
	}
	for _, e := range []*processpb.ProcessEvent{
		{Event: &processpb.ProcessEvent_Data{Data: &processpb.ProcessEvent_DataEvent{Output: &processpb.ProcessEvent_DataEvent_Stdout{Stdout: []byte(text)}}}},
		{Event: &processpb.ProcessEvent_End{End: &processpb.ProcessEvent_EndEvent{Exited: true, ExitCode: code, Status: "exit status"}}},
	} {
		if err := out.Send(&processpb.StartResponse{Event: e}); err != nil {
			return err
		}
	}
	return nil
}

// start serves two gateways and returns the Options of a whole check.
func (f *installation) start(t *testing.T) Options {
	t.Helper()
	f.live, f.files = map[string]bool{}, map[string]string{}
	o := Options{Key: key, Template: "base", First: FirstRequest{Pool: "echo", Port: 8000, Path: "/", WebSocketPath: "/ws"}}
	for n := range 2 {
		s := httptest.NewServer(f.gateway(n))
		t.Cleanup(s.Close)
		o.Gateways = append(o.Gateways, strings.TrimPrefix(s.URL, "http://"))
	}
	o.Service = o.Gateways[0]
	return o
}
