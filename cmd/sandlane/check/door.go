package check

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	// requestTimeout is for one request; a claim may wait for a warm pod.
	requestTimeout = 60 * time.Second
	maxAnswer      = 1 << 20
)

// door is one address that the installation is reached by. It never follows a
// redirect, and asks no proxy.
type door struct {
	address, scheme string
	client          *http.Client
}

func newDoor(address string, config *tls.Config) *door {
	d := &door{address: address, scheme: "http"}
	if config != nil {
		d.scheme = "https"
	}
	d.client = &http.Client{
		Transport:     &http.Transport{TLSClientConfig: config},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return d
}

func (d *door) close() { d.client.CloseIdleConnections() }

func (d *door) url(path string) string { return d.scheme + "://" + d.address + path }

// ask sends a request and returns status and body.
func (d *door) ask(ctx context.Context, method, path string, headers http.Header, body io.Reader) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, d.url(path), body)
	if err != nil {
		return 0, nil, err
	}
	for name, values := range headers {
		req.Header[name] = values
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, nil, fmt.Errorf("%s %s: read the answer: %w", method, d.url(path), err)
	}
	return resp.StatusCode, text, nil
}

// want is ask, and an error if the status is another.
func (d *door) want(ctx context.Context, status int, method, path string, headers http.Header, body io.Reader) error {
	got, text, err := d.ask(ctx, method, path, headers, body)
	if err != nil {
		return err
	}
	if got != status {
		return fmt.Errorf("%s %s is answered with %d, want %d: %s", method, d.url(path), got, status, start(text))
	}
	return nil
}

// start is the first line of an answer, for an error.
func start(text []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return line[:min(len(line), 200)]
}

// route are the headers that lead to a port of a sandbox.
func route(id, port string) http.Header {
	return http.Header{"X-Sandbox-Id": {id}, "X-Sandbox-Port": {port}}
}
