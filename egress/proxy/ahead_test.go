package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"testing"
	"time"
)

// patient reads nothing until it may, and fails if that never comes.
type patient struct {
	net.Conn
	may <-chan struct{}
}

// Read implements io.Reader.
func (c patient) Read(p []byte) (int, error) {
	select {
	case <-c.may:
		return c.Conn.Read(p)
	case <-time.After(20 * time.Second):
		return 0, os.ErrDeadlineExceeded
	}
}

// The host is connected to while the client's handshake goes on, and the first request goes by
// that connection.
func TestConnectsAhead(t *testing.T) {
	w := newWorld(t, nil)
	begun, handshakes := make(chan struct{}), 0
	w.connected = func() {
		if handshakes++; handshakes == 1 {
			close(begun)
		}
	}
	w.claim(t, 1, "c1", ruled(secretValue))
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: w.trust}, Protocols: &protocols,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			c, err := tryFrom(t, 1, w.o.Listeners.HTTPS)
			return patient{c, begun}, err
		},
	}
	defer tr.CloseIdleConnections()
	if code, body := get(t, &http.Client{Transport: tr}, request(t, "GET", "https://ruled.example/", nil)); code != 200 || body != "HTTP/2.0 ruled.example" {
		t.Errorf("%d %s", code, body)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if handshakes != 1 || len(w.seen) != 1 || w.seen[0].Header.Get("Authorization") != secretValue {
		t.Errorf("%d handshakes, %d requests", handshakes, len(w.seen))
	}
}
