package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandlane/sandlane/egress/names"
	"github.com/sandlane/sandlane/routecache"
)

// When a fence is acknowledged every connection of the former claim is closed and its
// requests have ended, on both sides; the next claim's own are served.
func TestFence(t *testing.T) {
	arrived, left := make(chan string, 8), make(chan string, 8)
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			arrived <- r.Host
			<-r.Context().Done()
			left <- r.Host
		}
	})
	w.claim(t, 1, "c1", ruled(secretValue))
	passed, err := w.secure(t, 1, "api.example")
	if err != nil {
		t.Fatal(err)
	}
	kept, err := w.secure(t, 1, "ruled.example")
	if err != nil {
		t.Fatal(err)
	}
	ends := make(chan error, 2)
	for _, http2 := range []bool{false, true} {
		c := w.client(t, 1, http2)
		go func() {
			answer, err := c.Do(request(t, "GET", "https://ruled.example/hang", nil))
			if err == nil {
				_, err = io.ReadAll(answer.Body)
				answer.Body.Close()
				if err == nil && answer.StatusCode == 200 {
					ends <- nil
					return
				}
			}
			ends <- io.EOF
		}()
		<-arrived
	}
	if err := w.Claims().Fence(t.Context(), []routecache.Fence{{Addr: podAddr(1), RV: w.rv + 1}}); err != nil {
		t.Fatal(err)
	}
	w.rv++
	if open := w.openOf(1); open != 0 {
		t.Errorf("acknowledged with %d connections", open)
	}
	for range 2 {
		if err := <-ends; err == nil {
			t.Error("a former request was answered")
		}
		<-left
	}
	closes(t, "a connection that was passed on", passed)
	closes(t, "one that ended here", kept)
	w.claim(t, 1, "c2", names.Rules{DenyAll: true, AllowNames: []string{"ruled.example"}, Headers: map[string]map[string]string{"ruled.example": {"X-Next": "2"}}})
	if code, _ := get(t, w.client(t, 1, false), request(t, "GET", "https://ruled.example/", nil)); code != 200 {
		t.Errorf("the next claim: %d", code)
	}
	asked := w.asked()
	if h := asked[len(asked)-1].Header; h.Get("Authorization") != "" || h.Get("X-Next") != "2" {
		t.Errorf("the next claim's request: %v", h)
	}
}

// Connections that begin while fences end their claims hold up nothing: each fence is acknowledged.
func TestConnectionsBeginWhileClaimsEnd(t *testing.T) {
	w := newWorld(t, nil)
	// With the table locked for good nothing else would end the test.
	heldUp := time.AfterFunc(time.Minute, func() { panic("a fence is held up") })
	defer heldUp.Stop()
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for ctx.Err() == nil {
				if c, err := tryFrom(t, 1, w.o.Listeners.HTTPS); err == nil {
					c.Close()
				}
			}
		})
	}
	for i := range 500 {
		w.claim(t, 1, fmt.Sprint("c", i), ruled(secretValue))
		fencing, cancel := context.WithTimeout(ctx, 30*time.Second)
		err := w.Claims().Fence(fencing, []routecache.Fence{{Addr: podAddr(1), RV: w.rv + 1}})
		cancel()
		if err != nil {
			t.Error(err)
			break
		}
		w.rv++
		heldUp.Reset(time.Minute)
	}
	stop()
	clients.Wait()
}

// openOf counts connections that are served, but for what has no claim.
func (w *world) openOf(n byte) int {
	w.Server.mu.Lock()
	defer w.Server.mu.Unlock()
	return w.open[podAddr(n)]
}

// Rules that change within a claim hold for its next request, on connections that are open.
func TestRulesChange(t *testing.T) {
	w := newWorld(t, nil)
	w.claim(t, 1, "c1", ruled("one"))
	c := w.client(t, 1, false)
	ask := func() (string, error) {
		answer, err := c.Do(request(t, "GET", "https://ruled.example/", nil))
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		_, _ = io.Copy(io.Discard, answer.Body)
		asked := w.asked()
		return asked[len(asked)-1].Header.Get("Authorization"), nil
	}
	if got, err := ask(); got != "one" {
		t.Fatalf("%q, %v", got, err)
	}
	w.rules(t, 1, "c1", ruled("two"))
	if got, err := ask(); got != "two" {
		t.Errorf("%q, %v", got, err)
	}
	w.rules(t, 1, "c1", names.Rules{DenyAll: true, AllowNames: []string{"api.example"}})
	if _, err := ask(); err == nil || !strings.Contains(err.Error(), "access denied") {
		t.Errorf("a host that is denied by now: %v", err)
	}
}
