package check

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/coder/websocket"
)

// firstRequest makes a sandbox by a request through the Service, reaches it through
// each gateway, by a WebSocket as well, and ends it.
func (c *checker) firstRequest(ctx context.Context) (err error) {
	id := newID()
	request := route(id, strconv.Itoa(c.First.Port))
	request.Set("X-Sandbox-Pool", c.First.Pool)
	request.Set("X-Sandbox-Api-Key", c.Key)
	defer func() { // also of a first request that failed: the sandbox may have been made for it
		if err != nil {
			c.clean(ctx, id)
		}
	}()
	if err := get(ctx, c.service, c.First.Path, request); err != nil {
		return fmt.Errorf("the first request: %w", err)
	}
	for _, d := range c.gateways {
		if err := get(ctx, d, c.First.Path, request); err != nil {
			return err
		}
		if c.First.WebSocketPath == "" {
			continue
		}
		if err := webSocket(ctx, d, c.First.WebSocketPath, request); err != nil {
			return fmt.Errorf("a WebSocket through %s: %w", d.address, err)
		}
	}
	if err := c.end(ctx, id, request); err != nil {
		return err
	}
	c.Progress(fmt.Sprintf("a first request made a sandbox of pool %s, which each gateway reached, and it ended for all", c.First.Pool))
	return nil
}

func get(ctx context.Context, d *door, path string, request http.Header) error {
	status, text, err := d.ask(ctx, http.MethodGet, path, request, nil)
	if err != nil {
		return err
	}
	if status < http.StatusOK || status >= http.StatusBadRequest {
		return fmt.Errorf("GET %s is answered with %d, want 200 to 399: %s", d.url(path), status, start(text))
	}
	return nil
}

// webSocket sends a message and wants it back.
func webSocket(ctx context.Context, d *door, path string, request http.Header) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	conn, resp, err := websocket.Dial(ctx, d.url(path), &websocket.DialOptions{HTTPClient: d.client, HTTPHeader: request})
	if resp != nil && resp.Body != nil {
		defer resp.Body.Close()
	}
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseNow() }()
	text := newID()
	if err := conn.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
		return err
	}
	_, read, err := conn.Read(ctx)
	if err != nil {
		return err
	}
	if string(read) != text {
		return fmt.Errorf("it answers %q, want the message itself", start(read))
	}
	return conn.Close(websocket.StatusNormalClosure, "")
}
