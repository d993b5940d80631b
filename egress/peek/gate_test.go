package peek

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/iotest"
)

const get = "GET / HTTP/1.1\r\nHost: a.com\r\n\r\n"

func TestParseHead(t *testing.T) {
	for text, want := range map[string]Head{
		get: {Method: "GET", Host: "a.com"},
		"POST /x?y HTTP/1.1\r\nhost:a.com:443\r\nContent-Length: 12\r\n\r\n":                             {Method: "POST", Host: "a.com:443", Length: 12},
		"PUT / HTTP/1.1\r\nHost: a.com\r\nTransfer-Encoding: Chunked\r\n\r\n":                            {Method: "PUT", Host: "a.com", Chunked: true},
		"GET / HTTP/1.1\r\nHost: a.com\r\nConnection: upgrade\r\nUpgrade: WebSocket\r\n\r\n":             {Method: "GET", Host: "a.com", Upgrade: true},
		"OPTIONS * HTTP/1.0\r\nHost: a.com\r\nX-Empty:\r\nX-Tab: a\tb\r\n\r\n":                           {Method: "OPTIONS", Host: "a.com"},
		"CONNECT b.com:443 HTTP/1.1\r\nHost: b.com:443\r\nContent-Length: 000000000000000007\r\n\r\nabc": {Method: "CONNECT", Host: "b.com:443", Length: 7},
	} {
		h, n, err := ParseHead([]byte(text))
		if err != nil || h != want || n != strings.Index(text, "\r\n\r\n")+4 {
			t.Errorf("%q: %+v, %d, %v", text, h, n, err)
		}
		for i := range n {
			if _, n, err := ParseHead([]byte(text[:i])); n != 0 || err != nil {
				t.Errorf("%q: %d, %v", text[:i], n, err)
			}
		}
	}
	head := func(lines ...string) string {
		return "POST / HTTP/1.1\r\nHost: a.com\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
	}
	for _, text := range []string{
		head("Content-Length: 1", "Transfer-Encoding: chunked"), head("Content-Length: 1", "Content-Length: 1"), head("Content-Length: 1, 1"),
		head("Content-Length: +1"), head("Content-Length: "), head("Content-Length: 0x1"), head("Content-Length: 1000000000000000000"),
		head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), head("Transfer-Encoding: gzip, chunked"), head("Transfer-Encoding: identity"),
		head("Transfer-Encoding: \x0bchunked"), head("Transfer-Encoding : chunked"), head("Transfer-Encoding:\r\n chunked"),
		head("Host: a.com"), head("X: a\nHost: b.com"), head("X: a\rb"), head("X: a\x00b"), head(" X: a"), head(": a"), head("X"), head("X\xc3\xa9: a"),
		head("Connection: upgrade", "Upgrade: h2c"), head("Upgrade: websocket"), head("Connection: x-upgrade", "Upgrade: websocket"),
		head("Connection: upgrade", "Upgrade: websocket", "Content-Length: 1"), head("Connection: upgrade", "Upgrade: websocket", "Upgrade: h2c"),
		"GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: \r\n\r\n", "\r\n" + get, "GET  / HTTP/1.1\r\nHost: a.com\r\n\r\n", "GET / HTTP/1.1 \r\nHost: a.com\r\n\r\n",
		"GET http://b.com/ HTTP/1.1\r\nHost: a.com\r\n\r\n", "GET * HTTP/1.1\r\nHost: a.com\r\n\r\n", "GET /\x7f HTTP/1.1\r\nHost: a.com\r\n\r\n",
		"GET / HTTP/2.0\r\nHost: a.com\r\n\r\n", "GET / HTTP/1.1\nHost: a.com\r\n\r\n", "G(T / HTTP/1.1\r\nHost: a.com\r\n\r\n", "GET /\r\nHost: a.com\r\n\r\n",
		"POST / HTTP/1.0\r\nHost: a.com\r\nTransfer-Encoding: chunked\r\n\r\n", "GET / HTTP/1.0\r\nHost: a.com\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
	} {
		if h, n, err := ParseHead([]byte(text)); !errors.Is(err, ErrHead) || n != 0 {
			t.Errorf("%q: %+v, %d, %v", text, h, n, err)
		}
	}
	for _, n := range []int{maxHead, 2 * maxHead} {
		if _, _, err := ParseHead([]byte("GET / HTTP/1.1\r\nHost: a.com\r\nX: " + strings.Repeat("x", n) + "\r\n\r\n")); !errors.Is(err, ErrTooLong) {
			t.Errorf("a head of %d bytes: %v", n, err)
		}
	}
}

func TestReadHead(t *testing.T) {
	h, taken, err := ReadHead(iotest.HalfReader(strings.NewReader(get + "more")))
	if whole := get + "more"; err != nil || h.Host != "a.com" || !strings.HasPrefix(whole, string(taken)) {
		t.Errorf("%+v, %q, %v", h, taken, err)
	}
	if _, taken, err = ReadHead(strings.NewReader(get[:20])); !errors.Is(err, io.EOF) || string(taken) != get[:20] {
		t.Errorf("half a head: %q, %v", taken, err)
	}
}

const chunked = "PUT / HTTP/1.1\r\nHost: a.com\r\nTransfer-Encoding: chunked\r\n\r\n"

// A gate gives on what it has read, however it comes, and stops before what it refuses.
func TestGate(t *testing.T) {
	whole := get + "POST / HTTP/1.1\r\nHost: a.com\r\nContent-Length: 5\r\n\r\nhello" + chunked + "3\r\nabc\r\n0000F\r\n0123456789abcde\r\n0\r\nX-T: v\r\n\r\n" + get
	upgrade := "GET / HTTP/1.1\r\nHost: a.com\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n"
	for text, want := range map[string]string{ // what is given on of it; all with "" means all
		whole: "", upgrade + "\x81\x00 anything": "", get + upgrade + "\r\n": "",
		whole + "GET / HTTP/1.1\r\nHost: b.com\r\n\r\n":              whole,
		get + "GET / HTTP/1.1\r\nHost: a.com\r\nHost: b.com\r\n\r\n": get,
		chunked + "3;ext=1\r\nabc\r\n0\r\n\r\n":                      chunked,
		chunked + "3\r\nabcd\r\n0\r\n\r\n":                           chunked + "3\r\nabc",
		chunked + "\r\nabc":                                          chunked,
		chunked + "-1\r\n":                                           chunked,
		chunked + "0\r\nGET / HTTP/1.1\r\n\r\n":                      chunked + "0\r\n",
		chunked + "0\r\nX: a\nb\r\n\r\n":                             chunked + "0\r\n",
		chunked + "1000000000000000\r\n":                             chunked,
		"POST / HTTP/1.1\r\nHost: a.com\r\nContent-Length: 2\r\n\r\nGET / HTTP/1.1\r\nHost: a": "POST / HTTP/1.1\r\nHost: a.com\r\nContent-Length: 2\r\n\r\nGE",
	} {
		for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text))} {
			got, err := io.ReadAll(NewGate(r, hostIsA))
			if want == "" && (err != nil || string(got) != text) {
				t.Errorf("%q: %q, %v", text, got, err)
			} else if want != "" && (err == nil || string(got) != want) {
				t.Errorf("%q: %q, %v", text, got, err)
			}
		}
	}
}

var errHost = errors.New("another host")

func hostIsA(h Head) error {
	if h.Host != "a.com" {
		return errHost
	}
	return nil
}

// net/http ends a read of its own by a deadline, and goes on reading later.
func TestGateGoesOnAfterATimeout(t *testing.T) {
	r := &halting{parts: []string{get[:10], "", get[10:], ""}}
	g, got := NewGate(r, hostIsA), []byte{}
	for range 6 {
		var b [100]byte
		n, err := g.Read(b[:])
		if got = append(got, b[:n]...); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	if string(got) != get {
		t.Errorf("%q", got)
	}
}

// halting has a timeout for each part that is empty, and after the last.
type halting struct{ parts []string }

func (h *halting) Read(p []byte) (int, error) {
	if len(h.parts) == 0 || h.parts[0] == "" {
		h.parts = h.parts[min(1, len(h.parts)):]
		return 0, os.ErrDeadlineExceeded
	}
	n := copy(p, h.parts[0])
	h.parts = h.parts[1:]
	return n, nil
}

// What a gate gives on net/http reads as the same requests, with the same ends.
func FuzzGate(f *testing.F) {
	f.Add([]byte(get + chunked + "3\r\nabc\r\n0\r\n\r\n" + get))
	f.Add([]byte("POST / HTTP/1.1\r\nHost: a.com\r\nContent-Length: 5\r\n\r\nhello" + get))
	f.Add([]byte(chunked + "0\r\nX: y\r\n\r\n" + get))
	f.Add([]byte("GET /%%% HTTP/1.1\r\nHost: a.com\r\n\r\n" + get)) // net/http takes no such target
	f.Fuzz(func(t *testing.T, b []byte) {
		var heads []Head
		given, err := io.ReadAll(NewGate(bytes.NewReader(b), func(h Head) error {
			heads = append(heads, h)
			return nil
		}))
		if !bytes.HasPrefix(b, given) || err == nil && len(given) != len(b) {
			t.Fatalf("%q is not what came, or not all of it", given)
		}
		r := bufio.NewReader(bytes.NewReader(given))
		for i, h := range heads {
			request, err := http.ReadRequest(r)
			if err != nil {
				if h.Upgrade || i == len(heads)-1 {
					return // stricter than we are
				}
				t.Fatalf("request %d of %q: %v", i, given, err)
			}
			if request.Host != h.Host || request.Method != h.Method {
				t.Fatalf("request %d of %q is for %s %s, we read %+v", i, given, request.Method, request.Host, h)
			}
			if h.Upgrade {
				return
			}
			if n, err := io.Copy(io.Discard, request.Body); err == nil && !h.Chunked && n != h.Length {
				t.Fatalf("request %d of %q has a body of %d bytes, we read %+v", i, given, n, h)
			} else if err != nil {
				if i < len(heads)-1 {
					t.Fatalf("request %d of %q: %v", i, given, err)
				}
				return // the gate has stopped within it
			}
		}
		if rest, _ := io.ReadAll(r); err == nil && len(rest) > 0 {
			t.Fatalf("%q: %q is left", given, rest)
		}
	})
}
