package sandboxd

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"
)

// hangingFreezer does not come back from a thaw.
type hangingFreezer struct {
	stubFreezer
	over chan struct{}
}

func (f *hangingFreezer) Thaw() error {
	<-f.over
	return nil
}

// Serve returns although what it waits for hangs: a sandbox that escapes its freezer, or is
// deleted, must not run on.
func TestServeEndsWhateverHangs(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g, f := newGateway("pod-1"), &hangingFreezer{over: make(chan struct{})}
	s := New(g.options(Options{Freezer: f, Grace: time.Millisecond}))
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, listener) }()
	a := &agent{t: t, url: "http://" + listener.Addr().String(), client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	g.init(a, 204, "", `{}`)
	if status := g.order(a, "freeze", 1); status != 204 {
		t.Errorf("freeze: %d", status)
	}
	stop()
	select {
	case err := <-served:
		if !errors.Is(err, errLeftOver) {
			t.Errorf("Serve: %v", err)
		}
	case <-time.After(patience):
		t.Error("Serve does not return")
	}
	close(f.over)
}
