package sandboxdclient

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// connection is a TCP connection to a sandboxd, for the few requests of one call. Close it.
type connection struct {
	agent  *Agent
	origin string
	client *http.Client
}

func (a *Agent) connect(addr netip.Addr) *connection {
	return &connection{
		agent:  a,
		origin: "http://" + net.JoinHostPort(addr.String(), strconv.Itoa(v1alpha1.SandboxdPort)),
		client: &http.Client{
			Transport:     &http.Transport{DialContext: (&net.Dialer{Timeout: agentConnectTimeout}).DialContext},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

func (c *connection) close() { c.client.CloseIdleConnections() }

// call sends one request and returns the status and the body of its answer; ErrNoAnswer if
// there is none.
func (c *connection) call(ctx context.Context, method, path string, header http.Header, body []byte) (int, []byte, error) {
	res, err := c.open(ctx, method, path, header, body)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAgentAnswer))
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrNoAnswer, err)
	}
	return res.StatusCode, answer, err
}

// open sends one request and returns its answer, whose body is to be closed; ErrNoAnswer if
// there is none.
func (c *connection) open(ctx context.Context, method, path string, header http.Header, body []byte) (*http.Response, error) {
	if !c.agent.holdsLease() {
		return nil, errNoLease
	}
	req, err := http.NewRequestWithContext(ctx, method, c.origin+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header
	res, err := c.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoAnswer, err)
	}
	return res, nil
}
