package restapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/requestbody"
)

// serve runs a server on a unix socket, as Envoy sees it, until the test ends.
// change may be nil.
func serve(t *testing.T, s *Server) (dial func() net.Conn, stop context.CancelFunc, ended chan error) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "api")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended = make(chan error, 1)
	done := make(chan struct{})
	go func() { ended <- s.Serve(ctx, l); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return func() net.Conn {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}, cancel, ended
}

// send writes a request and returns the status and body of its answer.
func send(t *testing.T, conn net.Conn, request string) (int, string) {
	t.Helper()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatalf("write %.80q: %v", request, err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("answer to %.80q: %v", request, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func post(headers, body string) string {
	return "POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nX-API-KEY: " + keyA + "\r\nContent-Type: application/json\r\n" + headers + "\r\n" + body
}

// Bodies may be chunked, as JS sends them, and are bounded in size and time.
func TestBodies(t *testing.T) {
	patient, _, _ := serve(t, newServer(t, newFake(), nil))
	s := newServer(t, newFake(), nil)
	s.timeouts.Body = 50 * time.Millisecond
	impatient, _, _ := serve(t, s)
	big := strings.Repeat("x", requestbody.Max)
	for _, c := range []struct {
		what, request string
		status        int
	}{
		{"chunked", post("Transfer-Encoding: chunked\r\n", "a\r\n{\"template\r\nb\r\nID\":\"base\"}\r\n0\r\n\r\n"), 201},
		{"of known length", post("Content-Length: 21\r\n", base), 201},
		{"too long by its length", post(fmt.Sprintf("Content-Length: %d\r\n", requestbody.Max+1), ""), 413},
		{"too long in chunks", post("Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n1\r\nx\r\n", len(big), big)), 413},
		{"that does not come", post("Content-Length: 21\r\n", "{"), 408},
		{"that does not come, and a wrong key", strings.Replace(post("Content-Length: 21\r\n", "{"), keyA, "e2b_1", 1), 401},
		{"that does not come, for no path", strings.Replace(post("Content-Length: 21\r\n", "{"), "/v2/", "/v9/", 1), 404},
		{"of another type", strings.Replace(post("Content-Length: 21\r\n", base), "application/json", "text/plain", 1), 400},
	} {
		dial := patient
		if strings.Contains(c.what, "does not come") {
			dial = impatient
		}
		status, body := send(t, dial(), c.request)
		if status != c.status || status != 201 && !strings.Contains(body, fmt.Sprintf(`"code":%d`, c.status)) {
			t.Errorf("a body %s: %d %s, want %d", c.what, status, body, c.status)
		}
	}
}

// The body's deadline is not the create's: one that waits longer is not cancelled.
func TestCreateOutlastsTheBodyDeadline(t *testing.T) {
	f := newFake()
	f.create = func(ctx context.Context, _ NewSandbox) error {
		longer, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		select {
		case <-longer.Done():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s := newServer(t, f, nil)
	s.timeouts.Body, s.timeouts.Header = 20*time.Millisecond, 20*time.Millisecond
	dial, _, _ := serve(t, s)
	if status, body := send(t, dial(), post("Content-Length: 21\r\n", base)); status != 201 {
		t.Errorf("%d %s", status, body)
	}
}

// A client that hangs up cancels its create.
func TestHangUpCancels(t *testing.T) {
	f := newFake()
	begun, cancelled := make(chan struct{}), make(chan error, 1)
	f.create = func(ctx context.Context, _ NewSandbox) error {
		close(begun)
		<-ctx.Done()
		cancelled <- context.Cause(ctx)
		return ctx.Err()
	}
	dial, _, _ := serve(t, newServer(t, f, nil))
	conn := dial()
	if _, err := io.WriteString(conn, post("Content-Length: 21\r\n", base)); err != nil {
		t.Fatal(err)
	}
	<-begun
	conn.Close()
	if err := <-cancelled; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled by %v", err)
	}
}

// When it stops, Serve lets a request end that can, and cancels one that does not.
func TestStop(t *testing.T) {
	for what, finishes := range map[string]bool{"that ends": true, "that does not end": false} {
		t.Run(what, func(t *testing.T) {
			f := newFake()
			begun, proceed := make(chan struct{}), make(chan struct{})
			f.create = func(ctx context.Context, _ NewSandbox) error {
				close(begun)
				select {
				case <-proceed:
					return nil
				case <-ctx.Done():
					return fmt.Errorf("%w: stopped", ErrNoCapacity)
				}
			}
			s := newServer(t, f, nil)
			s.timeouts.Finish = time.Minute
			if !finishes {
				s.timeouts.Finish = 10 * time.Millisecond
			}
			dial, stop, ended := serve(t, s)
			conn := dial()
			if _, err := io.WriteString(conn, post("Content-Length: 21\r\n", base)); err != nil {
				t.Fatal(err)
			}
			<-begun
			stop()
			if finishes {
				close(proceed)
			}
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			if (response.StatusCode == 201) != finishes {
				t.Errorf("answered %d", response.StatusCode)
			}
			if err := <-ended; err != nil {
				t.Errorf("Serve: %v", err)
			}
		})
	}
}
