package template

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

const (
	// maxAnswer bounds an answer, in bytes.
	maxAnswer = 16 << 20
	// answerWithin bounds the wait for an answer's head, once the request is sent.
	answerWithin = 2 * time.Minute
)

// api is a REST API with its key.
type api struct {
	url, key string
	client   *http.Client
}

// newAPI returns an api. caFile has the certificates to trust; empty: the machine's.
func newAPI(at, key, caFile string) (*api, error) {
	if u, err := url.Parse(at); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("--url %q is no URL of a REST API", at)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = answerWithin
	if caFile != "" {
		text, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("read the certificate of \"sandlane up\": %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("the certificate of \"sandlane up\", %s, cannot be read: start it anew", caFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &api{url: strings.TrimRight(at, "/"), key: key, client: &http.Client{Transport: transport}}, nil
}

func escape(text string) string { return url.PathEscape(text) }

// call sends body as JSON, if there is one, and reads the answer into result, if that is not nil.
func (a *api) call(ctx context.Context, method, path string, body, result any) error {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(text)
	}
	q, err := http.NewRequestWithContext(ctx, method, a.url+path, content)
	if err != nil {
		return err
	}
	q.Header.Set("X-API-KEY", a.key)
	if body != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	return a.do(q, result)
}

// put uploads a file.
func (a *api) put(ctx context.Context, to string, file *os.File, size int64) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodPut, to, io.NopCloser(file))
	if err != nil {
		return err
	}
	q.ContentLength = size
	return a.do(q, nil)
}

func (a *api) do(q *http.Request, result any) error {
	answer, err := a.client.Do(q)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if answer.StatusCode >= 300 {
		var refused struct{ Message string }
		if json.Unmarshal(text, &refused) == nil && refused.Message != "" {
			return fmt.Errorf("%s (%d)", refused.Message, answer.StatusCode)
		}
		return fmt.Errorf("the answer is %s", answer.Status)
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(text, result); err != nil {
		return fmt.Errorf("the answer is not one of a REST API of sandboxes: %w", err)
	}
	return nil
}
