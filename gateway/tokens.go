package gateway

import (
	"context"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/credentials"
)

// tokens is the credentials' tokens in extproc's words. The seed is read when
// the gateway joins, which it tries until it succeeds: a gateway that starts while
// the API server is away is there, and not ready. Before that no token is valid.
type tokens struct {
	client    client.Client // must not read from a cache
	namespace string
	loaded    atomic.Pointer[credentials.Tokens]
}

// load reads the seed, unless it has been read: it never changes.
func (t *tokens) load(ctx context.Context) error {
	if t.loaded.Load() != nil {
		return nil
	}
	l, err := credentials.LoadTokens(ctx, t.client, t.namespace)
	if err != nil {
		return err
	}
	t.loaded.Store(l)
	return nil
}

// ValidTraffic implements extproc.Tokens.
func (t *tokens) ValidTraffic(id, token string) bool {
	l := t.loaded.Load()
	return l != nil && l.ValidTraffic(id, token)
}
