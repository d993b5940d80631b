package controlplane

import (
	"context"
	"time"
)

// GetLastActive polls, and returns by sandbox ID when a gateway last saw it in use.
func (c *Client) GetLastActive(ctx context.Context) (map[string]time.Time, error) {
	if err := c.Poll(ctx); err != nil {
		return nil, err
	}
	a := &c.activity
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make(map[string]time.Time, len(a.latest))
	for k, at := range a.latest {
		if at.After(out[k.id]) {
			out[k.id] = at
		}
	}
	return out, nil
}
