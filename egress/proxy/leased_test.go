package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
)

// What a sandbox sends once this process has lost its lease reaches nobody, also before the process
// has noticed the loss and closed the connection: it may have stood still until the sandbox was over.
func TestNothingPassesWithoutTheLease(t *testing.T) {
	for what, dial := range map[string]func(*world) (net.Conn, string, error){
		"passed on": func(w *world) (net.Conn, string, error) {
			c, err := w.secure(t, 1, "api.example")
			return c, "api.example", err
		},
		"intercepted": func(w *world) (net.Conn, string, error) {
			c, err := w.secure(t, 1, "ruled.example")
			return c, "ruled.example", err
		},
		"plain HTTP": func(w *world) (net.Conn, string, error) {
			c, err := tryFrom(t, 1, w.o.Listeners.HTTP)
			return c, "api.example", err
		},
	} {
		t.Run(what, func(t *testing.T) {
			came := make(chan string, 8)
			w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				defer close(came)
				c := http.NewResponseController(rw)
				_ = c.EnableFullDuplex()
				for b := make([]byte, 1); ; {
					if _, err := io.ReadFull(r.Body, b); err != nil {
						return
					}
					came <- string(b)
					if _, err := rw.Write(b); err != nil || c.Flush() != nil {
						return
					}
				}
			})
			w.claim(t, 1, "c1", ruled(secretValue))
			c, host, err := dial(w)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", host)
			answer, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			b := make([]byte, 1)
			if _, err := io.ReadFull(answer.Body, b); err != nil {
				t.Fatal(err)
			}
			w.lost.Store(true)
			_, _ = io.WriteString(c, "1\r\nb\r\n")
			if _, err := io.ReadFull(answer.Body, b); err == nil {
				t.Errorf("%q was answered", b)
			}
			if err := w.Claims().Drop(t.Context()); err != nil {
				t.Error(err)
			}
			c.Close()
			if got := <-came + <-came; got != "a" {
				t.Errorf("%q came", got)
			}
		})
	}
}
