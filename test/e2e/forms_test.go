package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sandlane/sandlane/test/stack"
)

// byHost makes a request whose Host names the sandbox, sent to the gateway's
// own address: *.localhost does not resolve on every machine.
func byHost(t *testing.T, method, host, path string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, shared.Up.GatewayURL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	return req
}

func send(t *testing.T, c *http.Client, req *http.Request) stack.Answer {
	t.Helper()
	a, err := stack.Send(c, req)
	if err != nil {
		t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	return a
}

// A first request claims a pod whichever of the three forms names the sandbox,
// and all three reach the same one.
func TestThreeForms(t *testing.T) {
	pods := map[string]string{}
	for form, first := range map[string]func(id string) stack.Answer{
		"host": func(id string) stack.Answer {
			return send(t, nil, byHost(t, "GET", "8000-"+id+".localhost", "/a?b=c", nil))
		},
		"headers": func(id string) stack.Answer {
			return shared.Do(t, nil, stack.Request{ID: id, Path: "/a?b=c"})
		},
		"path": func(id string) stack.Answer {
			return send(t, nil, byHost(t, "GET", "localhost", "/sandboxes/"+id+"/8000/a?b=c", nil))
		},
	} {
		t.Run(form, func(t *testing.T) {
			id := "form-" + form
			a := first(id)
			if a.Echo == nil {
				t.Fatalf("first request by %s: %v", form, a)
			}
			if a.Echo.Path != "/a?b=c" {
				t.Errorf("the pod saw path %q, want /a?b=c", a.Echo.Path)
			}
			if other, taken := pods[a.Echo.PodUID]; taken {
				t.Errorf("sandboxes %s and %s share a pod", id, other)
			}
			pods[a.Echo.PodUID] = id
			b := shared.Do(t, nil, stack.Request{ID: id})
			if b.Echo == nil || b.Echo.PodUID != a.Echo.PodUID || b.Echo.Process != a.Echo.Process {
				t.Errorf("the second request got %v, want pod %s", b, a.Echo.Pod)
			}
		})
	}
}

func TestWebSocket(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, res, err := websocket.Dial(ctx, shared.Up.GatewayURL+"/ws", &websocket.DialOptions{Host: "8000-websocket.localhost"})
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	if res.Body != nil {
		defer func() { _ = res.Body.Close() }()
	}
	defer func() { _ = c.CloseNow() }()
	for i := range 10 {
		want := fmt.Sprintf("message %d", i)
		if err := c.Write(ctx, websocket.MessageText, []byte(want)); err != nil {
			t.Fatal(err)
		}
		_, got, err := c.Read(ctx)
		if err != nil || string(got) != want {
			t.Fatalf("echo of %q: %q, %v", want, got, err)
		}
	}
}

func TestLargeBodies(t *testing.T) {
	const size = 100 << 20
	t.Run("upload", func(t *testing.T) {
		body := io.LimitReader(rand.Reader, size)
		req, err := http.NewRequestWithContext(t.Context(), "POST", shared.Up.GatewayURL+"/", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "8000-large.localhost"
		a := send(t, nil, req)
		if a.Status != 200 || !bytes.Contains(a.Body, []byte(fmt.Sprint(size))) {
			t.Errorf("upload of %d bytes: %v", size, a)
		}
	})
	t.Run("download", func(t *testing.T) {
		req := byHost(t, "GET", "8000-large.localhost", fmt.Sprintf("/bytes?n=%d", size), nil)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		n, err := io.Copy(io.Discard, res.Body)
		if err != nil || n != size {
			t.Errorf("downloaded %d bytes of %d: %v", n, size, err)
		}
	})
}

// HTTP/2 without TLS works on the same port, with several requests on one
// connection.
func TestCleartextHTTP2(t *testing.T) {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	dials := 0
	tr := &http.Transport{Protocols: &protocols, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials++
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr, Timeout: 30 * time.Second}
	for range 3 {
		req := byHost(t, "GET", "8000-h2c.localhost", "/", nil)
		res, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != 200 || res.ProtoMajor != 2 {
			t.Fatalf("%s %d: %s", res.Proto, res.StatusCode, body)
		}
	}
	if dials != 1 {
		t.Errorf("%d connections for three requests", dials)
	}
}

// A response may stream for a minute; its lines arrive one by one, not at the end.
func TestStreamForAMinute(t *testing.T) {
	t.Parallel()
	began := time.Now()
	res, err := http.DefaultClient.Do(byHost(t, "GET", "8000-stream.localhost", "/stream?seconds=60", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	buf := make([]byte, 1)
	if _, err := io.ReadFull(res.Body, buf); err != nil {
		t.Fatal(err)
	}
	if first := time.Since(began); first > 20*time.Second {
		t.Errorf("the first byte came after %v: the answer is buffered", first)
	}
	rest, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("after %v: %v", time.Since(began), err)
	}
	if d := time.Since(began); d < 55*time.Second {
		t.Errorf("the stream ended after %v", d)
	}
	if n := strings.Count(string(rest), "\n"); n < 50 {
		t.Errorf("%d lines in a minute", n)
	}
}

// Ports are a number from 1 to 65535; a port where nothing listens is a 502
// that says so.
func TestPorts(t *testing.T) {
	shared.Touch(t, "ports", "")
	for _, port := range []string{"1", "8001", "65535"} {
		a := shared.Do(t, nil, stack.Request{ID: "ports", Port: port})
		if a.Status != 502 || !bytes.Contains(a.Body, []byte("port is not open")) || !bytes.Contains(a.Body, []byte(port)) {
			t.Errorf("port %s: %v", port, a)
		}
	}
	for _, port := range []string{"0", "65536", "08000", "-1", "8000x", "", "99999999999999999999"} {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", shared.Up.GatewayURL+"/", nil)
		req.Header["X-Sandbox-Id"] = []string{"ports"}
		req.Header["X-Sandbox-Port"] = []string{port}
		if a := send(t, nil, req); a.Status != 400 {
			t.Errorf("port %q by header: %v", port, a)
		}
		if port == "" {
			continue
		}
		if a := send(t, nil, byHost(t, "GET", "localhost", "/sandboxes/ports/"+url.PathEscape(port)+"/", nil)); a.Status != 400 {
			t.Errorf("port %q by path: %v", port, a)
		}
	}
}
