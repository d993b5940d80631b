package envoy

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// fetchFrom sends one request from an address of this machine, with a header that
// names another.
func fetchFrom(t *testing.T, w *world, address string) (*http.Response, string) {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, to)
		}}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Forwarded-For", "192.0.2."+address[strings.LastIndexByte(address, '.')+1:])
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// One address that sends more than its rate gets 429, of which the gateway hears
// nothing, and another is answered all the while.
func TestClientRate(t *testing.T) {
	t.Parallel()
	const rate, many = 5, 100
	w := startWorld(t, Options{ClientRate: rate}, true)
	w.podSaw = nil
	began := time.Now()
	answers := map[int]int{}
	for i := range many {
		resp, body := fetchFrom(t, w, "127.0.0.1")
		answers[resp.StatusCode]++
		if resp.StatusCode == http.StatusTooManyRequests && (!strings.Contains(body, tooOftenMessage) || resp.Header.Get("Retry-After") == "") {
			t.Fatalf("refused with %v %s", resp.Header, body)
		}
		if i%25 != 0 {
			continue
		}
		if resp, body := fetchFrom(t, w, "127.0.0.2"); resp.StatusCode != http.StatusOK {
			t.Errorf("another address: %d %s", resp.StatusCode, body)
		}
	}
	// A full bucket, and what came into it since.
	most := rate + int(time.Since(began).Seconds()*rate) + 1
	if answers[200] < rate || answers[200] > most || answers[200]+answers[429] != many {
		t.Errorf("answers %v, want at most %d of 200", answers, most)
	}
	if asked := w.gateway.forget(); asked != answers[200]+many/25 {
		t.Errorf("the gateway was asked %d times for %v", asked, answers)
	}
}

// Without the option no address is limited.
func TestNoClientRateByDefault(t *testing.T) {
	t.Parallel()
	js, err := JSON(mustBootstrap(t, Options{RunDir: "/run/x"}))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(js), "local_ratelimit") {
		t.Error("the configuration limits by address")
	}
}
