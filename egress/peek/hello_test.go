package peek

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"testing/iotest"
)

// hello is the ClientHello that a Go client sends.
func hello(t testing.TB, c *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		_ = tls.Client(client, c).Handshake()
	}()
	head := make([]byte, 5)
	if _, err := io.ReadFull(server, head); err != nil {
		t.Fatal(err)
	}
	rest := make([]byte, int(head[3])<<8|int(head[4]))
	if _, err := io.ReadFull(server, rest); err != nil {
		t.Fatal(err)
	}
	return append(head, rest...)
}

func TestHello(t *testing.T) {
	whole := hello(t, &tls.Config{ServerName: "api.example.com", NextProtos: []string{"h2"}})
	// A record for each 100 bytes, as Chromium and others send long ones.
	var split []byte
	for body := whole[5:]; len(body) > 0; {
		n := min(100, len(body))
		split = append(append(split, 22, 3, 1, 0, byte(n)), body[:n]...)
		body = body[n:]
	}
	for what, bs := range map[string][]byte{"one record": whole, "many records": split, "more behind it": append(bytes.Clone(whole), "more"...)} {
		name, taken, err := Hello(iotest.OneByteReader(bytes.NewReader(bs)))
		if err != nil || name != "api.example.com" || !bytes.HasPrefix(bs, taken) || len(taken) < len(whole) {
			t.Errorf("%s: %q, %d bytes of %d, %v", what, name, len(taken), len(bs), err)
		}
	}
	if name, _, err := Hello(bytes.NewReader(hello(t, &tls.Config{InsecureSkipVerify: true}))); err != nil || name != "" { //nolint:gosec // no server name without it
		t.Errorf("without a server name: %q, %v", name, err)
	}
	if _, _, err := Hello(bytes.NewReader(whole[:50])); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a ClientHello: %v", err)
	}
	if _, taken, err := Hello(bytes.NewReader([]byte("GET / HTTP/1.1\r\n\r\n"))); err == nil {
		t.Errorf("HTTP is taken for TLS: %q", taken)
	}
	endless := io.MultiReader(bytes.NewReader([]byte{22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff}), endlessZeros{})
	if _, taken, err := Hello(endless); err == nil || len(taken) > maxHello {
		t.Errorf("an endless ClientHello: %d bytes taken, %v", len(taken), err)
	}
}

type endlessZeros struct{}

func (endlessZeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func FuzzHello(f *testing.F) {
	f.Add(hello(f, &tls.Config{ServerName: "api.example.com"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		name, taken, err := Hello(bytes.NewReader(b))
		if !bytes.HasPrefix(b, taken) {
			t.Fatal("what was taken is not what came")
		}
		if err != nil && name != "" {
			t.Fatalf("%q with %v", name, err)
		}
		// A server that gets these bytes sees the same name.
		again, _, err2 := Hello(bytes.NewReader(taken))
		if again != name || (err == nil) != (err2 == nil) {
			t.Fatalf("%q, %v; what was taken says %q, %v", name, err, again, err2)
		}
	})
}
