package e2b

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
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

// testTLSGateway looks at one gateway without an SDK.
func testTLSGateway(t *testing.T, s *stack.Stack, g stack.Gateway) {
	address := strings.TrimPrefix(g.URL, "https://")
	if _, port, _ := net.SplitHostPort(address); g.URL != "https://"+address || g.Domain != tlsDomain+":"+port {
		t.Fatalf("up.json says %+v", g)
	}
	t.Run("certificate", func(t *testing.T) { testCertificate(t, s, address) })
	t.Run("no TLS", func(t *testing.T) { testNoTLS(t, address) })
	for version, major := range map[string]int{"HTTP1.1": 1, "HTTP2": 2} {
		c := tlsClient(t, s, address, major)
		t.Run(version+" forms", func(t *testing.T) { testTLSForms(t, c, g, major) })
		t.Run(version+" API", func(t *testing.T) { testTLSAPI(t, c, s, g, major) })
	}
	t.Run("WebSocket", func(t *testing.T) { testTLSWebSocket(t, tlsClient(t, s, address, 1), g) })
}

// tlsClient finds every name at one address, trusts the stack's authority alone,
// and speaks one version of HTTP.
func tlsClient(t *testing.T, s *stack.Stack, address string, major int) *http.Client {
	t.Helper()
	var protocols http.Protocols
	protocols.SetHTTP1(major == 1)
	protocols.SetHTTP2(major == 2)
	tr := &http.Transport{
		Protocols:       &protocols,
		TLSClientConfig: &tls.Config{RootCAs: trusted(t, s), MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		},
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

func testCertificate(t *testing.T, s *stack.Stack, address string) {
	pool := trusted(t, s)
	dial := func(config *tls.Config) (tls.ConnectionState, error) {
		config.RootCAs = pool
		c, err := tls.DialWithDialer(&net.Dialer{Timeout: 20 * time.Second}, "tcp", address, config)
		if err != nil {
			return tls.ConnectionState{}, err
		}
		defer func() { _ = c.Close() }()
		return c.ConnectionState(), nil
	}
	for _, name := range []string{tlsDomain, "api." + tlsDomain, "8000-hello." + tlsDomain, "49983-i0123456789abcdefghij." + tlsDomain, "localhost", "127.0.0.1"} {
		if _, err := dial(&tls.Config{ServerName: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"a.b." + tlsDomain, "other.localhost", "localhost." + tlsDomain + ".example", "example.com", "127.0.0.2", "::1"} {
		if _, err := dial(&tls.Config{ServerName: name}); err == nil {
			t.Errorf("the certificate is good for %s", name)
		}
	}
	for offered, want := range map[string]string{"h2 http/1.1": "h2", "http/1.1 h2": "h2", "http/1.1": "http/1.1", "h2": "h2", "": ""} {
		state, err := dial(&tls.Config{ServerName: "localhost", NextProtos: strings.Fields(offered)})
		if err != nil || state.NegotiatedProtocol != want {
			t.Errorf("offered %q: got %q, %v; want %q", offered, state.NegotiatedProtocol, err, want)
		}
	}
	if _, err := dial(&tls.Config{ServerName: "localhost", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 is taken")
	}
	state, err := dial(&tls.Config{ServerName: "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(state.PeerCertificates[0].NotAfter); left < 396*24*time.Hour || left > 397*24*time.Hour {
		t.Errorf("the certificate is good for %v", left)
	}
}

// Who speaks HTTP without TLS is not answered.
func testNoTLS(t *testing.T, address string) {
	c := &http.Client{Timeout: 20 * time.Second}
	res, err := c.Get("http://" + address + "/health")
	if err == nil {
		_ = res.Body.Close()
		t.Errorf("plain HTTP got %s", res.Status)
	}
}

// ask sends a request to a URL under another host name, if one is given.
func ask(t *testing.T, c *http.Client, method, at, host string, header map[string]string, body io.Reader) (stack.Answer, int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, at, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	for k, v := range header {
		req.Header.Set(k, v)
	}
	major := 0
	watched := *c
	watched.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		res, err := c.Transport.RoundTrip(r)
		if err == nil {
			major = res.ProtoMajor
		}
		return res, err
	})
	a, err := stack.Send(&watched, req)
	if err != nil {
		t.Fatalf("%s %s for %s: %v", method, at, host, err)
	}
	return a, major
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// All forms that name a sandbox lead to the same pod; other hosts get the answers
// that they get without TLS.
func testTLSForms(t *testing.T, c *http.Client, g stack.Gateway, major int) {
	id := "tls-" + g.Name
	named := map[string]string{"X-Sandbox-Id": id, "X-Sandbox-Port": "8000"}
	e2bNamed := map[string]string{"E2b-Sandbox-Id": id, "E2b-Sandbox-Port": "8000"}
	pod := ""
	for _, form := range []struct {
		at, host string
		header   map[string]string
	}{
		{at: "https://8000-" + id + "." + g.Domain + "/"},
		{at: "https://8000-" + id + "." + tlsDomain + "/"},
		{at: "https://8000-" + id + "." + strings.ToUpper(g.Domain) + "/"},
		{at: g.URL, host: "8000-" + id + ".example.com"},
		{at: g.URL, header: named},
		{at: g.URL, header: e2bNamed},
		{at: "https://localhost/", header: named},
		{at: "https://sandbox." + g.Domain + "/", header: e2bNamed},
		{at: g.URL + "/sandboxes/" + id + "/8000/"},
		{at: "https://localhost/sandboxes/" + id + "/8000/"},
	} {
		a, got := ask(t, c, http.MethodGet, form.at, form.host, form.header, nil)
		if a.Echo == nil || got != major {
			t.Errorf("%s as %q: HTTP/%d %v", form.at, form.host, got, a)
			continue
		}
		if pod == "" {
			pod = a.Echo.PodUID
		}
		if a.Echo.PodUID != pod {
			t.Errorf("%s as %q is another pod", form.at, form.host)
		}
	}
	for _, wrong := range []struct {
		at, host string
		status   int
		says     string
	}{
		{"https://" + g.Domain + "/", "", 400, "Invalid host"},
		{"https://foo." + g.Domain + "/", "", 400, "Invalid host"},
		{"https://8000." + g.Domain + "/", "", 400, "Invalid host"},
		{"https://x-" + id + "." + g.Domain + "/", "", 400, "port"},
		{"https://0-" + id + "." + g.Domain + "/", "", 400, "port"},
		{g.URL, "nowhere", 400, "Invalid host"},
		{"https://8000-i0123456789abcdefghij." + g.Domain + "/", "", 502, "The sandbox was not found"},
		{"https://8001-" + id + "." + g.Domain + "/", "", 502, "The sandbox is running but port is not open"},
		{"https://49983-" + id + "." + g.Domain + "/init", "", 404, "reserved"},
		{"https://localhost/", "", 404, "<port>-<ID>"},
	} {
		a, got := ask(t, c, http.MethodGet, wrong.at, wrong.host, nil, nil)
		var body struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		}
		if err := json.Unmarshal(a.Body, &body); err != nil || a.Status != wrong.status || body.Code != wrong.status ||
			!strings.Contains(body.Message, wrong.says) || got != major {
			t.Errorf("%s as %q: HTTP/%d %v, want %d with %q", wrong.at, wrong.host, got, a, wrong.status, wrong.says)
		}
	}
}

// The REST API is at api.<domain>, and on the address itself. What it makes is
// found below the gateway's own domain.
func testTLSAPI(t *testing.T, c *http.Client, s *stack.Stack, g stack.Gateway, major int) {
	key := map[string]string{"X-API-KEY": s.Up.APIKey, "Content-Type": "application/json"}
	for _, at := range []string{"https://api." + g.Domain, "https://API." + tlsDomain, g.URL, "https://localhost"} {
		if a, got := ask(t, c, http.MethodGet, at+"/v2/sandboxes", "", key, nil); a.Status != 200 || got != major {
			t.Errorf("%s: HTTP/%d %v", at, got, a)
		}
		if a, _ := ask(t, c, http.MethodGet, at+"/v2/sandboxes", "", nil, nil); a.Status != 401 {
			t.Errorf("%s without a key: %v", at, a)
		}
	}
	api := "https://api." + g.Domain
	var made struct{ SandboxID, Domain, EnvdAccessToken string }
	a, _ := ask(t, c, http.MethodPost, api+"/v2/sandboxes", "", key, strings.NewReader(`{"templateID":"base","timeout":120}`))
	if err := json.Unmarshal(a.Body, &made); err != nil || a.Status != 201 || made.Domain != g.Domain {
		t.Fatalf("create: %v, want the domain %s", a, g.Domain)
	}
	a, _ = ask(t, c, http.MethodPost, api+"/v2/sandboxes/"+made.SandboxID+"/connect", "", key, strings.NewReader(`{}`))
	if err := json.Unmarshal(a.Body, &made); err != nil || a.Status != 200 || made.Domain != g.Domain {
		t.Errorf("connect: %v, want the domain %s", a, g.Domain)
	}
	envd := "https://49983-" + made.SandboxID + "." + made.Domain
	if a, got := ask(t, c, http.MethodGet, envd+"/health", "", nil, nil); a.Status != 204 || got != major {
		t.Errorf("health: HTTP/%d %v", got, a)
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	at := envd + "/files?username=user&path=" + url.QueryEscape("/home/user/raw.bin")
	token := map[string]string{"X-Access-Token": made.EnvdAccessToken, "Content-Type": "application/octet-stream", "Accept-Encoding": "identity"}
	if a, _ := ask(t, c, http.MethodPost, at, "", token, bytes.NewReader(data)); a.Status != 200 {
		t.Errorf("upload: %v", a)
	}
	if a, _ := ask(t, c, http.MethodGet, at, "", token, nil); a.Status != 200 || !bytes.Equal(a.Body, data) {
		t.Errorf("download: %d with %d bytes", a.Status, len(a.Body))
	}
	if a, _ := ask(t, c, http.MethodDelete, api+"/sandboxes/"+made.SandboxID, "", key, nil); a.Status != 204 {
		t.Errorf("kill: %v", a)
	}
	if a, _ := ask(t, c, http.MethodGet, envd+"/health", "", nil, nil); a.Status != 502 || !bytes.Contains(a.Body, []byte("The sandbox was not found")) {
		t.Errorf("health after kill: %v", a)
	}
}

func testTLSWebSocket(t *testing.T, c *http.Client, g stack.Gateway) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, res, err := websocket.Dial(ctx, "wss://8000-tls-"+g.Name+"."+g.Domain+"/ws", &websocket.DialOptions{HTTPClient: c})
	if err != nil {
		t.Fatal(err)
	}
	if res.Body != nil {
		defer func() { _ = res.Body.Close() }()
	}
	defer func() { _ = conn.CloseNow() }()
	for i := range 10 {
		want := fmt.Sprintf("message %d", i)
		if err := conn.Write(ctx, websocket.MessageText, []byte(want)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := conn.Read(ctx); err != nil || string(got) != want {
			t.Fatalf("echo of %q: %q, %v", want, got, err)
		}
	}
}
