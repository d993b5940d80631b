package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// adminFake stands in for an Envoy's admin socket and keeps what it was told to
// do. It quits as Envoy does: its socket is closed.
type adminFake struct {
	mu     sync.Mutex
	told   []string
	state  string
	open   int
	quit   func()
	stays  bool   // told to quit, it does not
	onPost func() // may be nil
}

func startAdmin(t *testing.T, dir string) *adminFake {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(dir, EnvoyAdminSocket))
	if err != nil {
		t.Fatal(err)
	}
	f := &adminFake{state: "LIVE"}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /server_info", func(w http.ResponseWriter, _ *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		fmt.Fprintf(w, `{"state":%q,"command_line_options":{"concurrency":1}}`, f.state)
	})
	mux.HandleFunc("GET /listeners", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) })
	mux.HandleFunc("GET /stats/prometheus", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "envoy_server_live 1\n") })
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		fmt.Fprintf(w, "listener_manager.listener_stopped: 1\nhttp.main.downstream_rq_active: %d\nhttp.main.downstream_cx_active: %d\n", f.open, f.open)
	})
	mux.HandleFunc("POST /", func(_ http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.told = append(f.told, r.URL.Path)
		if f.onPost != nil {
			f.onPost()
		}
		if r.URL.Path == "/quitquitquit" && !f.stays {
			f.quit()
		}
	})
	server := &http.Server{Handler: mux}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	f.quit = func() { _ = l.Close() }
	t.Cleanup(func() { _ = server.Close(); serving.Wait() })
	return f
}

func (f *adminFake) want(t *testing.T, told ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.told, told) {
		t.Errorf("Envoy was told %v, want %v", f.told, told)
	}
}

func testDrain(t *testing.T, forceStop <-chan struct{}, grace time.Duration) (*drain, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "gw") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return newDrain(Options{RunDir: dir, DrainGrace: grace, ForceStop: forceStop, Log: slog.New(slog.DiscardHandler)}), dir
}

// wantGone checks what a drain says of Envoy afterwards.
func wantGone(t *testing.T, got, want bool) {
	t.Helper()
	if got != want {
		t.Errorf("Envoy is gone: %v, want %v", got, want)
	}
}

func TestDrainEndsEnvoy(t *testing.T) {
	all := []string{"/healthcheck/fail", "/drain_listeners", "/quitquitquit"}
	t.Run("nothing is open", func(t *testing.T) {
		d, dir := testDrain(t, nil, time.Hour)
		f := startAdmin(t, dir)
		wantGone(t, d.envoy(t.Context()), true)
		f.want(t, all...)
	})
	t.Run("it is looked at and requests are refused just before", func(t *testing.T) {
		for name, tc := range map[string]struct{ looked, refused error }{
			"":            {},
			"unreadable":  {looked: errors.New("unreadable")},
			"not refused": {refused: errors.New("a handler is stuck")},
		} {
			d, dir := testDrain(t, nil, time.Hour)
			f := startAdmin(t, dir)
			var steps []string
			d.noteOpen = func(context.Context) error {
				f.want(t, all[:2]...)
				steps = append(steps, "looked")
				return tc.looked
			}
			d.refuse = func(context.Context) error {
				f.want(t, all[:2]...)
				steps = append(steps, "refused")
				return tc.refused
			}
			wantGone(t, d.envoy(t.Context()), true)
			f.want(t, all...)
			if d.openNoted != (name == "") || !slices.Equal(steps, []string{"looked", "refused"}) {
				t.Errorf("%s: steps %v, what was open is known: %v", name, steps, d.openNoted)
			}
		}
	})
	t.Run("the grace ends", func(t *testing.T) {
		d, dir := testDrain(t, nil, time.Second)
		f := startAdmin(t, dir)
		f.open = 1
		began := time.Now()
		wantGone(t, d.envoy(t.Context()), true)
		f.want(t, all...)
		if time.Since(began) < time.Second {
			t.Error("an open request was not given its time")
		}
	})
	t.Run("told to forceStop", func(t *testing.T) {
		forceStop := make(chan struct{})
		d, dir := testDrain(t, forceStop, time.Hour)
		f := startAdmin(t, dir)
		f.open = 1
		close(forceStop)
		wantGone(t, d.envoy(t.Context()), true)
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.told) == 0 || f.told[len(f.told)-1] != "/quitquitquit" {
			t.Errorf("Envoy was told %v, want to quit", f.told)
		}
	})
	t.Run("there is no Envoy", func(t *testing.T) {
		d, _ := testDrain(t, nil, time.Hour)
		wantGone(t, d.envoy(t.Context()), true)
	})
	failed, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("ExtProc ended"))
	t.Run("a part has failed", func(t *testing.T) {
		d, dir := testDrain(t, nil, time.Hour)
		f := startAdmin(t, dir)
		wantGone(t, d.envoy(failed), false)
		f.want(t)
	})
	t.Run("a part has failed, and there is no Envoy", func(t *testing.T) {
		d, _ := testDrain(t, nil, time.Hour)
		wantGone(t, d.envoy(failed), true)
	})
	t.Run("a part fails while it drains", func(t *testing.T) {
		d, dir := testDrain(t, nil, time.Hour)
		f := startAdmin(t, dir)
		f.open = 1
		failing, fail := context.WithCancel(t.Context())
		f.onPost = fail
		wantGone(t, d.envoy(failing), false)
	})
	t.Run("it does not quit", func(t *testing.T) {
		d, dir := testDrain(t, nil, time.Hour)
		f := startAdmin(t, dir)
		f.stays = true
		wantGone(t, d.envoy(t.Context()), false)
		f.want(t, all...)
	})
}

// An Envoy that listens no more is ended at the start, one that serves is not.
func TestLeftoverEnvoy(t *testing.T) {
	for state, want := range map[string][]string{"LIVE": nil, "INITIALIZING": nil, "DRAINING": {"/quitquitquit"}} {
		d, dir := testDrain(t, nil, time.Hour)
		f := startAdmin(t, dir)
		f.state = state
		if err := d.endLeftover(t.Context()); err != nil {
			t.Error(err)
		}
		f.want(t, want...)
	}
}
