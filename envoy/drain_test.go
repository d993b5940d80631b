package envoy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A drain waits for open requests, and not longer than it may.
func TestDrain(t *testing.T) {
	t.Parallel()
	w := startWorld(t, Options{}, true)
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/slow", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if draining, err := w.admin.Draining(t.Context()); draining || err != nil {
		t.Errorf("draining before a drain: %v, %v", draining, err)
	}
	short, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	left, err := w.admin.Drain(short, 0)
	if err != nil || short.Err() == nil || left.Requests != 1 {
		t.Errorf("Drain returned %+v, %v before its time with a request open", left, err)
	}
	if draining, err := w.admin.Draining(t.Context()); !draining || err != nil {
		t.Errorf("draining after a drain: %v, %v", draining, err)
	}
	cancel()
	long, stop2 := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop2()
	if left, err := w.admin.Drain(long, 0); err != nil || long.Err() != nil || left.Requests != 0 {
		t.Errorf("Drain: %+v, %v, %v; want an end once nothing is open", left, err, long.Err())
	}
	if err := w.admin.Quit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Wait(); err != nil {
		t.Errorf("Envoy told to quit ended with %v", err)
	}
	if _, err := w.admin.Drain(t.Context(), 0); !errors.Is(err, ErrGone) {
		t.Errorf("Drain without an Envoy: %v", err)
	}
}

// A kept connection without a request does not hold a drain up for long.
func TestDrainLeavesIdleConnections(t *testing.T) {
	t.Parallel()
	w := startWorld(t, Options{}, true)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Get(w.url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil { // else it is not kept
		t.Fatal(err)
	}
	resp.Body.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if left, err := w.admin.Drain(ctx, 0); err != nil || ctx.Err() != nil || left != (Open{Connections: 1}) {
		t.Errorf("Drain: %+v, %v, %v; want one connection left", left, err, ctx.Err())
	}
}

// Clients that connect anew or keep connections, all the time: whatever is not
// refused at connecting is answered. Only a request of which not a byte was
// written is sent again by net/http, since PUT is not idempotent to it.
func TestDrainFailsNoRequest(t *testing.T) {
	t.Parallel()
	const rounds, clients, warm = 6, 8, 30
	answered, refused := 0, 0
	for range rounds {
		w := startWorld(t, Options{}, true)
		w.podSaw = nil
		ctx, cancel := context.WithCancel(t.Context())
		busy := make(chan struct{}, warm)
		var mu sync.Mutex
		var asking sync.WaitGroup
		for i := range clients {
			tr := &http.Transport{DisableKeepAlives: i%2 == 0}
			c := &http.Client{Transport: tr, Timeout: 10 * time.Second}
			asking.Go(func() {
				defer tr.CloseIdleConnections()
				for ctx.Err() == nil {
					status, err := put(c, w.url)
					mu.Lock()
					switch {
					case err == nil && status == http.StatusOK:
						answered++
						select {
						case busy <- struct{}{}:
						default:
						}
					case errors.Is(err, syscall.ECONNREFUSED):
						refused++
						mu.Unlock()
						return
					default:
						t.Errorf("client %d: %d, %v", i, status, err)
					}
					mu.Unlock()
				}
			})
		}
		for range warm {
			<-busy
		}
		if left, err := w.admin.Drain(t.Context(), 100*time.Millisecond); err != nil || left != (Open{}) {
			t.Errorf("Drain: %+v, %v", left, err)
		}
		if err := w.admin.Quit(t.Context()); err != nil {
			t.Error(err)
		}
		asking.Wait() // each ends when it is refused
		cancel()
	}
	t.Logf("%d drains: %d requests answered, %d refused at connecting", rounds, answered, refused)
	if answered < rounds*(warm+clients) || refused != rounds*clients {
		t.Error("that is too little load to prove anything")
	}
}

func put(c *http.Client, url string) (int, error) {
	req, err := http.NewRequest(http.MethodPut, url, strings.NewReader("x"))
	if err != nil {
		return 0, fmt.Errorf("make a request: %w", err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}
