package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"testing"
	"time"
)

// A connection without a byte for too long ends on both sides, whether it is passed on or
// has become another protocol's here; one on which bytes pass lives on.
func TestQuietConnectionEnds(t *testing.T) {
	ended := make(chan struct{}, 2)
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		c, _, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(c, c)
		_ = c.Close()
		ended <- struct{}{}
	})
	w.quiet = time.Second
	w.claim(t, 1, "c1", ruled(secretValue))
	for _, host := range []string{"api.example", "ruled.example"} {
		c, err := w.secure(t, 1, host)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		head := make([]byte, 12)
		if _, err := io.ReadFull(c, head); err != nil || string(head) != "HTTP/1.1 101" {
			t.Fatalf("%s: %q, %v", host, head, err)
		}
		busy, stop := context.WithTimeout(t.Context(), 3*time.Second)
		for begun := time.Now(); busy.Err() == nil; { // longer than quiet, never quiet
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatalf("%s: ended after %s, with bytes on the way: %v", host, time.Since(begun), err)
			}
			if _, err := c.Read(head); err != nil {
				t.Fatalf("%s: ended after %s, with bytes on the way: %v", host, time.Since(begun), err)
			}
		}
		stop()
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%s: it is still open", host)
		}
		<-ended
	}
}
