package referee

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// backend is the gateway as it is seen through a fault.
type backend struct {
	key       string
	url       *url.URL
	proxy     *httptest.Server
	transport *http.Transport
	hop       hop

	mu        sync.Mutex        // guards what follows
	tokens    map[string]string // of the daemon, by sandbox
	traffic   map[string]string // tokens of private ports, by sandbox
	snapshots map[string]bool
}

// proxies numbers the proxies. Each sends from an address of its own, since a gateway allows
// each address only a few requests without a valid key.
var proxies atomic.Uint32

// behind starts a proxy before the gateway. It ends with the test, and then deletes on the
// gateway itself what was made through it.
func behind(t *testing.T, gateway, key string, through hop) *backend {
	t.Helper()
	at, err := url.Parse(gateway)
	if err != nil {
		t.Fatal(err)
	}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, 0, byte(proxies.Add(1)))}}
	b := &backend{
		key: key, url: at, hop: through,
		transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 8, DialContext: dialer.DialContext},
		tokens:    map[string]string{}, traffic: map[string]string{}, snapshots: map[string]bool{},
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(at)
			r.Out.URL.RawQuery = r.In.URL.RawQuery
			if r.In.Host != r.In.Context().Value(http.LocalAddrContextKey).(interface{ String() string }).String() {
				r.Out.Host = r.In.Host // of a port
			}
			r.Out.Header.Del("Accept-Encoding") // faults read bodies
		},
		// Go's server panics at the next request if it sees the end of this one's body too late.
		ModifyResponse: func(r *http.Response) error {
			if r.StatusCode != http.StatusSwitchingProtocols {
				r.Header.Set("Connection", "close")
			}
			return nil
		},
		Transport: b, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
	}
	b.proxy = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Without it an answer that begins before the end of the request is seen ends the
		// request's body, and Go's transport cuts the answer off for that.
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			panic(err)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		b.proxy.Close()
		for id := range b.tokens {
			b.delete(t, "/sandboxes/"+id)
		}
		for id := range b.snapshots {
			b.delete(t, "/templates/"+id)
		}
		b.transport.CloseIdleConnections()
	})
	return b
}

func (b *backend) delete(t *testing.T, at string) {
	req, err := http.NewRequest(http.MethodDelete, b.url.String()+at, http.NoBody) //nolint:noctx // the test has ended
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", b.key)
	res, err := b.transport.RoundTrip(req)
	if err != nil {
		t.Error(err)
		return
	}
	_ = res.Body.Close()
}

// RoundTrip sends a request through the fault.
func (b *backend) RoundTrip(r *http.Request) (*http.Response, error) {
	return b.hop(&call{Request: r, backend: b})
}

// hop answers a request, by sending it on or not.
type hop func(*call) (*http.Response, error)

// call is a request on its way to the gateway.
type call struct {
	*http.Request
	backend *backend
}

var portHost = regexp.MustCompile(`^(\d+)-([^.]+)\.`)

// port and sandbox are those of a request by a port's host name.
func (c *call) port() (port, sandbox string) {
	if m := portHost.FindStringSubmatch(c.Host); m != nil {
		return m[1], m[2]
	}
	return "", ""
}

var version = regexp.MustCompile(`^/v[23]/`)

// what is "METHOD path" of the REST API, in which all versions of a path are the same,
// "envd METHOD path" of the daemon, "PORT METHOD path" of another port.
func (c *call) what() string {
	if port, _ := c.port(); port != "" {
		return port + " " + c.Method + " " + c.URL.Path
	}
	if c.Header.Get("E2b-Sandbox-Id") != "" {
		return "envd " + c.Method + " " + c.URL.Path
	}
	return c.Method + " " + version.ReplaceAllString(c.URL.Path, "/")
}

// send asks the gateway, and notes what was made.
func (c *call) send() (*http.Response, error) {
	res, err := c.backend.transport.RoundTrip(c.Request)
	if err != nil || res.StatusCode != http.StatusCreated || c.Method != http.MethodPost || c.Header.Get("E2b-Sandbox-Id") != "" {
		return res, err
	}
	if port, _ := c.port(); port != "" {
		return res, nil
	}
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		return nil, err
	}
	var made struct{ SandboxID, EnvdAccessToken, TrafficAccessToken, SnapshotID string }
	if json.Unmarshal(text, &made) == nil {
		c.backend.mu.Lock()
		if made.SandboxID != "" {
			c.backend.tokens[made.SandboxID], c.backend.traffic[made.SandboxID] = made.EnvdAccessToken, made.TrafficAccessToken
		}
		if made.SnapshotID != "" {
			c.backend.snapshots[made.SnapshotID] = true
		}
		c.backend.mu.Unlock()
	}
	return answer(res, res.StatusCode, text), nil
}

// known looks a sandbox or snapshot up.
func (b *backend) known(id string) (token, traffic string, snapshot bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tokens[id], b.traffic[id], b.snapshots[id]
}

// read is the request's body; it stays there to be sent.
func (c *call) read() []byte {
	if c.Body == nil {
		return nil
	}
	text, err := io.ReadAll(c.Body)
	if err != nil {
		return nil // the client has left
	}
	c.write(text)
	return text
}

func (c *call) write(text []byte) {
	c.Body, c.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	c.Header.Del("Content-Length")
}

// answer gives an answer another status and body.
func answer(res *http.Response, status int, text []byte) *http.Response {
	res.StatusCode, res.Status = status, ""
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	res.Header.Set("Content-Length", strconv.Itoa(len(text)))
	res.TransferEncoding = nil
	return res
}

// pass is no fault.
func pass(c *call) (*http.Response, error) { return c.send() }

// on is a fault of those requests alone whose what() matches.
func on(pattern string, do hop) hop {
	return func(c *call) (*http.Response, error) {
		if ok, err := path.Match(pattern, c.what()); err != nil || !ok {
			return c.send()
		}
		return do(c)
	}
}

// onAny is on with several patterns.
func onAny(do hop, patterns ...string) hop {
	return func(c *call) (*http.Response, error) {
		for _, p := range patterns {
			if ok, _ := path.Match(p, c.what()); ok {
				return do(c)
			}
		}
		return c.send()
	}
}

// say answers and asks nobody.
func say(status int, text string) hop {
	return func(c *call) (*http.Response, error) {
		res := &http.Response{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: c.Request, Header: http.Header{}}
		if text != "" {
			res.Header.Set("Content-Type", "application/json")
		}
		return answer(res, status, []byte(text)), nil
	}
}

// asked changes the JSON object that is asked with, also that of a Connect stream.
func asked(change func(c *call, m map[string]any)) hop {
	return func(c *call) (*http.Response, error) {
		text := c.read()
		var head []byte
		if strings.HasPrefix(c.Header.Get("Content-Type"), "application/connect+") && len(text) >= 5 {
			head, text = text[:5:5], text[5:]
		}
		var m map[string]any
		if json.Unmarshal(text, &m) != nil || m == nil {
			return c.send()
		}
		change(c, m)
		text, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		if head != nil {
			binary.BigEndian.PutUint32(head[1:], uint32(len(text))) //nolint:gosec // it is short
		}
		c.write(append(head, text...))
		return c.send()
	}
}

// without leaves fields out of what is asked, each by its path with dots.
func without(fields ...string) hop {
	return asked(func(_ *call, m map[string]any) {
		for _, f := range fields {
			parent, names := m, strings.Split(f, ".")
			for _, name := range names[:len(names)-1] {
				parent, _ = parent[name].(map[string]any)
			}
			delete(parent, names[len(names)-1])
		}
	})
}

// query changes the request's query.
func query(change func(url.Values)) hop {
	return func(c *call) (*http.Response, error) {
		q := c.URL.Query()
		change(q)
		c.URL.RawQuery = q.Encode()
		return c.send()
	}
}

// whole changes an answer as a whole.
func whole(change func(res *http.Response, text []byte) (int, []byte)) hop {
	return func(c *call) (*http.Response, error) {
		res, err := c.send()
		if err != nil || res.StatusCode == http.StatusSwitchingProtocols {
			return res, err
		}
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil {
			return nil, err
		}
		status, text := change(res, text)
		return answer(res, status, text), nil
	}
}

// becomes answers with another status and text where the status is from.
func becomes(from, to int, text string) hop {
	return whole(func(res *http.Response, was []byte) (int, []byte) {
		if res.StatusCode != from {
			return res.StatusCode, was
		}
		if text != "" {
			res.Header.Set("Content-Type", "application/json")
		}
		return to, []byte(text)
	})
}

// answered changes each object of a good answer: its body, or the elements if it is a list.
func answered(change func(m map[string]any)) hop {
	return whole(func(res *http.Response, text []byte) (int, []byte) {
		var v any
		if res.StatusCode >= 300 || json.Unmarshal(text, &v) != nil {
			return res.StatusCode, text
		}
		list, ok := v.([]any)
		if !ok {
			list = []any{v}
		}
		for _, one := range list {
			if m, ok := one.(map[string]any); ok {
				change(m)
			}
		}
		changed, err := json.Marshal(v)
		if err != nil {
			return http.StatusInternalServerError, nil
		}
		return res.StatusCode, changed
	})
}

// messages changes each message of a stream of Connect, as it passes; nil is left out.
func messages(change func(m map[string]any) map[string]any) hop {
	return func(c *call) (*http.Response, error) {
		res, err := c.send()
		if err != nil || !strings.HasPrefix(res.Header.Get("Content-Type"), "application/connect+json") {
			return res, err
		}
		from := res.Body
		out, in := io.Pipe()
		res.Body, res.ContentLength = out, -1
		res.Header.Del("Content-Length")
		go func() {
			in.CloseWithError(copyMessages(in, from, change))
			_ = from.Close()
		}()
		return res, nil
	}
}

const endOfStream = 2

func copyMessages(to io.Writer, from io.Reader, change func(m map[string]any) map[string]any) error {
	for {
		head := make([]byte, 5)
		if _, err := io.ReadFull(from, head); err != nil {
			return err // io.EOF between two messages
		}
		text := make([]byte, binary.BigEndian.Uint32(head[1:]))
		if _, err := io.ReadFull(from, text); err != nil {
			return err
		}
		var m map[string]any
		if head[0]&endOfStream == 0 && json.Unmarshal(text, &m) == nil {
			if m = change(m); m == nil {
				continue
			}
			var err error
			if text, err = json.Marshal(m); err != nil {
				return err
			}
			binary.BigEndian.PutUint32(head[1:], uint32(len(text))) //nolint:gosec // it is short
		}
		if _, err := to.Write(append(head, text...)); err != nil {
			return err
		}
	}
}

// object follows a path of objects; nil if there is none.
func object(m map[string]any, names ...string) map[string]any {
	for _, name := range names {
		m, _ = m[name].(map[string]any)
	}
	return m
}
