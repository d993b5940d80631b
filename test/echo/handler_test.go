package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

func serve(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(newHandler("p", "u"))
	t.Cleanup(s.Close)
	return s
}

func body(t *testing.T, method, url, send string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(send))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Test", "yes")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(raw)
}

func TestIdentity(t *testing.T) {
	s := serve(t)
	var first, second identity
	for _, id := range []*identity{&first, &second} {
		_, text := body(t, "GET", s.URL+"/a%2Fb?q=1", "")
		if err := json.Unmarshal([]byte(text), id); err != nil {
			t.Fatal(err)
		}
	}
	if first.Pod != "p" || first.PodUID != "u" || first.Method != "GET" || first.Path != "/a%2Fb?q=1" ||
		first.Host != strings.TrimPrefix(s.URL, "http://") || first.Headers.Get("X-Test") != "yes" {
		t.Errorf("got %+v", first)
	}
	if first.Process == "" || first.Process != second.Process {
		t.Errorf("process %q, then %q: want one value", first.Process, second.Process)
	}
}

func TestBytesBothWays(t *testing.T) {
	s := serve(t)
	if _, text := body(t, "POST", s.URL, strings.Repeat("x", 1<<20)); !strings.Contains(text, `"bytes":1048576`) {
		t.Errorf("upload: %s", text)
	}
	if code, text := body(t, "GET", s.URL+"/bytes?n=100001", ""); code != 200 || len(text) != 100001 {
		t.Errorf("download: %d, %d bytes", code, len(text))
	}
	for _, bad := range []string{"/bytes?n=-1", "/bytes", "/sleep?seconds=x", "/stream?seconds=NaN", "/sleep?seconds=1e9"} {
		if code, _ := body(t, "GET", s.URL+bad, ""); code != 400 {
			t.Errorf("%s: %d, want 400", bad, code)
		}
	}
}

func TestStreamFlushesEachLine(t *testing.T) {
	s := serve(t)
	res, err := http.Get(s.URL + "/stream?seconds=3600")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if line, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil || line != "line 0\n" {
		t.Errorf("got %q, %v", line, err)
	}
}

func TestSleep(t *testing.T) {
	s := serve(t)
	begun := time.Now()
	if code, _ := body(t, "GET", s.URL+"/sleep?seconds=0.05", ""); code != 200 || time.Since(begun) < 50*time.Millisecond {
		t.Errorf("%d after %s", code, time.Since(begun))
	}
}

func TestWebSocket(t *testing.T) {
	s := serve(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, _, err := websocket.Dial(ctx, s.URL+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.CloseNow() }()
	if err := c.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if kind, got, err := c.Read(ctx); err != nil || kind != websocket.MessageText || string(got) != "hello" {
		t.Errorf("got %v %q, %v", kind, got, err)
	}
}

func TestListenHost(t *testing.T) {
	env := map[string]string{}
	get := func(k string) string { return env[k] }
	if got := listenHost(get); got != "0.0.0.0" {
		t.Errorf("got %q", got)
	}
	env["SANDLANE_ADDRESS"] = "127.0.9.9"
	if got := listenHost(get); got != "127.0.9.9" {
		t.Errorf("got %q", got)
	}
}
