package gateway

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/credentials"
)

// tokens adapts the credentials' tokens to extproc.Tokens and restapi.Tokens. The gateway
// reads the seed when it joins, and tries until it succeeds: a gateway that starts while
// the API server is away runs and is not ready. Until then tokens derive from a random
// seed, so that no client's token is valid and no sandbox's token is empty.
type tokens struct {
	client    client.Client // must not read from a cache
	namespace string
	unknown   *credentials.Tokens
	loaded    atomic.Pointer[credentials.Tokens]
}

func newTokens(c client.Client, namespace string) (*tokens, error) {
	seed := make([]byte, 32)
	rand.Read(seed) // never fails
	unknown, err := credentials.NewTokens(seed)
	if err != nil {
		return nil, err
	}
	return &tokens{client: c, namespace: namespace, unknown: unknown}, nil
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

func (t *tokens) known() *credentials.Tokens {
	if l := t.loaded.Load(); l != nil {
		return l
	}
	return t.unknown
}

// ValidTraffic implements extproc.Tokens.
func (t *tokens) ValidTraffic(id string, uid types.UID, token string) bool {
	return t.known().ValidTraffic(id, uid, token)
}

// ValidEnvd implements extproc.Tokens.
func (t *tokens) ValidEnvd(id string, uid types.UID, token string) bool {
	return t.known().ValidEnvd(id, uid, token)
}

// useTicket takes the ticket of a link for the cookie of a port, once.
func (t *tokens) useTicket(ctx context.Context, id string, port uint16, ticket string) (cookie string, err error) {
	return t.known().UseTicket(ctx, t.client, t.namespace, id, port, ticket, time.Now())
}

// ValidPortCookie implements extproc.Tokens.
func (t *tokens) ValidPortCookie(id string, uid types.UID, port uint16, cookie string) bool {
	return t.known().ValidCookie(credentials.Port{ID: id, UID: uid, Number: port}, cookie)
}

// Envd implements restapi.Tokens.
func (t *tokens) Envd(id string, uid types.UID) string { return t.known().Envd(id, uid) }

// Upload signs the permission of an upload.
func (t *tokens) Upload(message string) string { return t.known().Upload(message) }

// Traffic implements restapi.Tokens.
func (t *tokens) Traffic(id string, uid types.UID) string { return t.known().Traffic(id, uid) }
