package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/egress/names"
)

// ruled denies all but hosts that have a header set.
func ruled(value string) names.Rules {
	set := map[string]string{"Authorization": value}
	return names.Rules{
		DenyAll: true, AllowNames: []string{"ruled.example", "forged.example", "api.example"},
		Headers: map[string]map[string]string{"ruled.example": set, "forged.example": set, "other.example": set},
	}
}

const secretValue = "Bearer sk-not-in-the-sandbox"

func get(t *testing.T, c *http.Client, r *http.Request) (code int, body string) {
	t.Helper()
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(b)
}

func request(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A request to a host with a rule gets the rule's header, whatever the client sent.
func TestHeadersAreReplaced(t *testing.T) {
	w := newWorld(t, nil)
	w.secrets["team/key"] = "sk-not-in-the-sandbox"
	w.claim(t, 1, "c1", ruled("Bearer ${e2b.secrets.key}"))
	for _, http2 := range []bool{false, true} {
		r := request(t, "POST", "https://ruled.example/v1?a=b;c&d", io.MultiReader(strings.NewReader("body")))
		r.Header["Authorization"] = []string{"Bearer mine", "Bearer mine too"}
		r.Header["X-Other"] = []string{"kept"}
		r.Header["X-Forwarded-For"] = []string{"192.0.2.9"}
		r.Trailer = http.Header{"X-T": {"t"}}
		if !http2 { // which forbids it
			r.Trailer["Authorization"] = []string{"Bearer of a trailer"}
		}
		if code, body := get(t, w.client(t, 1, http2), r); code != 200 || body != "HTTP/2.0 ruled.example" {
			t.Errorf("HTTP/2 %v: %d %s", http2, code, body)
		}
		asked := w.asked()
		got := asked[len(asked)-1]
		if h := got.Header; fmt.Sprint(h["Authorization"]) != "["+secretValue+"]" || h.Get("X-Other") != "kept" || h.Get("X-Forwarded-For") != "192.0.2.9" {
			t.Errorf("HTTP/2 %v: %v", http2, h)
		}
		if len(got.Trailer) > 0 || got.URL.RawQuery != "a=b;c&d" {
			t.Errorf("HTTP/2 %v: trailers %v, query %s", http2, got.Trailer, got.URL.RawQuery)
		}
	}
}

// What a client writes by hand takes no header away, and stands beside none.
func TestHeadersByHand(t *testing.T) {
	w := newWorld(t, nil)
	w.claim(t, 1, "c1", ruled(secretValue))
	for _, heads := range []string{
		"Connection: authorization, close\r\nAuthorization: mine\r\n",
		"aUTHORIZATION: mine\r\nAuthorization: mine\r\nConnection: close\r\n",
		"Connection: close\r\nConnection: authorization\r\n",
	} {
		c, err := w.secure(t, 1, "ruled.example")
		if err != nil {
			t.Fatal(err)
		}
		if got := answer(c, "GET / HTTP/1.1\r\nHost: ruled.example\r\n"+heads+"\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200") {
			t.Errorf("%q: %s", heads, got)
		}
		asked := w.asked()
		if got := asked[len(asked)-1].Header["Authorization"]; fmt.Sprint(got) != "["+secretValue+"]" {
			t.Errorf("%q: %v", heads, got)
		}
	}
}

// Nothing of a request that is refused reaches the host, nor of what comes behind it.
func TestRefusedRequests(t *testing.T) {
	w := newWorld(t, nil)
	w.addrs["forged.example"] = "127.0.0.1"
	w.claim(t, 1, "c1", ruled(secretValue))
	const next = "GET / HTTP/1.1\r\nHost: ruled.example\r\nX-Next: 1\r\n\r\n"
	for _, c := range []struct{ head, want string }{
		{"GET / HTTP/1.1\r\nHost: other.example\r\n", "HTTP/1.1 421"},
		{"GET / HTTP/1.1\r\nHost: api.example\r\n", "HTTP/1.1 421"},
		{"GET / HTTP/1.1\r\nHost: ruled.example:8443\r\n", "HTTP/1.1 400"},
		{"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n", "HTTP/1.1 400"},
		{"GET / HTTP/1.1\r\n", "HTTP/1.1 400"},
		{"GET https://other.example/ HTTP/1.1\r\nHost: ruled.example\r\n", "HTTP/1.1 400"},
		{"GET / HTTP/1.1\r\nHost: ruled.example\r\nHost: other.example\r\n", "HTTP/1.1 400"},
		{"TRACE / HTTP/1.1\r\nHost: ruled.example\r\n", "HTTP/1.1 405"},
		{"CONNECT ruled.example:443 HTTP/1.1\r\nHost: ruled.example\r\n", "HTTP/1.1 405"},
		{"POST / HTTP/1.1\r\nHost: ruled.example\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n", "HTTP/1.1 400"},
		{"POST / HTTP/1.1\r\nHost: ruled.example\r\nContent-Length: 3\r\nContent-Length: 4\r\n", "HTTP/1.1 400"},
		{"GET / HTTP/1.1\r\nHost: ruled.example\r\nX-A: b\r\n folded\r\n", "HTTP/1.1 400"},
	} {
		conn, err := w.secure(t, 1, "ruled.example")
		if err != nil {
			t.Fatal(err)
		}
		if got := answer(conn, c.head+"\r\n"+next); !strings.HasPrefix(got, c.want) || strings.Count(got, "HTTP/1.1") != 1 {
			t.Errorf("%q: %s", c.head, got)
		}
	}
	conn, err := w.secure(t, 1, "forged.example") // the internet has no certificate for it
	if err != nil {
		t.Fatal(err)
	}
	got := answer(conn, "GET / HTTP/1.1\r\nHost: forged.example\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 502") || !strings.Contains(got, `"host":"forged.example"`) || strings.Contains(got, "sk-") {
		t.Errorf("an upstream that is another: %s", got)
	}
	if asked := w.asked(); len(asked) > 0 {
		t.Errorf("the internet was asked %d times, first %s %v", len(asked), asked[0].Method, asked[0].Host)
	}
}

// HTTP/2 has no other way to name two hosts.
func TestTwoHostsByHTTP2(t *testing.T) {
	w := newWorld(t, nil)
	w.claim(t, 1, "c1", ruled(secretValue))
	c := w.client(t, 1, true)
	r := request(t, "GET", "https://ruled.example/", nil)
	r.Host = "other.example"
	if code, body := get(t, c, r); code != http.StatusMisdirectedRequest {
		t.Errorf("another :authority: %d %s", code, body)
	}
	if asked := w.asked(); len(asked) > 0 {
		t.Errorf("the internet was asked for %s", asked[0].Host)
	}
}

// A secret that is not there fails at use, with words and without the request.
func TestUnknownSecret(t *testing.T) {
	w := newWorld(t, nil)
	w.secrets["other/key"], w.secrets["team/broken"] = "another team's", "two\r\nlines"
	for secret, want := range map[string]string{"key": "secret key: there is no such secret", "broken": "secret broken: it has characters"} {
		w.claim(t, 1, "c-"+secret, ruled("Bearer ${e2b.secrets."+secret+"}"))
		code, body := get(t, w.client(t, 1, false), request(t, "GET", "https://ruled.example/", nil))
		if code != http.StatusBadGateway || !strings.Contains(body, want) || strings.Contains(body, "lines") {
			t.Errorf("%s: %d %s", secret, code, body)
		}
	}
	if asked := w.asked(); len(asked) > 0 {
		t.Errorf("the internet was asked: %v", asked[0].Header)
	}
}

// Port 80 is judged by Host, and never carries a credential.
func TestPlain(t *testing.T) {
	w := newWorld(t, nil)
	w.claim(t, 1, "c1", ruled(secretValue))
	c := w.client(t, 1, false)
	if code, body := get(t, c, request(t, "GET", "http://ruled.example/", nil)); code != 200 || body != "HTTP/1.1 ruled.example" {
		t.Errorf("%d %s", code, body)
	}
	if h := w.asked()[0].Header; h.Get("Authorization") != "" {
		t.Errorf("a credential by port 80: %v", h)
	}
	code, body := get(t, c, request(t, "GET", "http://denied.example/", nil))
	if code != http.StatusForbidden || !strings.Contains(body, `"host":"denied.example"`) {
		t.Errorf("a host that is denied: %d %s", code, body)
	}
	if got := answer(dialFrom(t, 1, w.o.Listeners.HTTP), "GET / HTTP/1.1\r\nHost: api.example\r\n\r\nGET / HTTP/1.1\r\nHost: ruled.example\r\n\r\n"); !strings.Contains(got, "HTTP/1.1 421") {
		t.Errorf("another host on the connection: %s", got)
	}
	if got := answer(dialFrom(t, 1, w.o.Listeners.HTTP), "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 400") {
		t.Errorf("an address: %s", got)
	}
}

// A WebSocket goes through; what comes behind an upgrade that is refused does not.
func TestUpgrade(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ws" {
			return
		}
		c, buffered, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		line, _ := buffered.ReadString('\n')
		_, _ = io.WriteString(c, "echo "+line)
	})
	w.claim(t, 1, "c1", ruled(secretValue))
	const upgrade = "Host: ruled.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	c, err := w.secure(t, 1, "ruled.example")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, "GET /ws HTTP/1.1\r\n"+upgrade)
	r := bufio.NewReader(c)
	if answer, err := http.ReadResponse(r, nil); err != nil || answer.StatusCode != 101 {
		t.Fatalf("%v, %v", answer, err)
	}
	_, _ = io.WriteString(c, "frame\n")
	if line, err := r.ReadString('\n'); line != "echo frame\n" {
		t.Errorf("%q, %v", line, err)
	}
	if h := w.asked()[0].Header.Get("Authorization"); h != secretValue {
		t.Errorf("it had %q", h)
	}
	if c, err = w.secure(t, 1, "ruled.example"); err != nil {
		t.Fatal(err)
	}
	got := answer(c, "GET /no HTTP/1.1\r\n"+upgrade+"GET / HTTP/1.1\r\nHost: other.example\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n")
	if strings.Count(got, "HTTP/1.1") != 1 || !strings.HasPrefix(got, "HTTP/1.1 200") || len(w.asked()) != 2 {
		t.Errorf("%d requests, %s", len(w.asked()), got)
	}
}

// Bodies pass both ways at once, whole.
func TestLongBodies(t *testing.T) {
	const size = 8 << 20
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(rw).EnableFullDuplex()
		rw.WriteHeader(200)
		_, _ = io.Copy(rw, r.Body)
	})
	w.claim(t, 1, "c1", ruled(secretValue))
	sent := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	for _, http2 := range []bool{false, true} {
		for _, host := range []string{"ruled.example", "api.example"} {
			code, body := get(t, w.client(t, 1, http2), request(t, "POST", "https://"+host+"/", io.MultiReader(bytes.NewReader(sent))))
			if code != 200 || body != string(sent) {
				t.Errorf("HTTP/2 %v, %s: %d, %d bytes", http2, host, code, len(body))
			}
		}
	}
}

// A client that reads nothing of an answer makes the proxy keep little of it.
func TestUnreadAnswersAreNotKept(t *testing.T) {
	sent := make(chan int, 1)
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
		n, err := 0, http.NewResponseController(rw).SetWriteDeadline(time.Now().Add(time.Second))
		for part := make([]byte, 16<<10); err == nil && n < 16<<20; {
			var more int
			more, err = rw.Write(part)
			n += more
		}
		sent <- n
	})
	w.claim(t, 1, "c1", ruled(secretValue))
	c := w.client(t, 1, true)
	c.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10, MaxReceiveBufferPerConnection: 64 << 10}
	answer, err := c.Do(request(t, "GET", "https://ruled.example/", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if n := <-sent; n > 2<<20 {
		t.Errorf("the upstream has sent %d bytes that nobody reads", n)
	}
}
