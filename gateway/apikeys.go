package gateway

import (
	"context"
	"errors"

	"github.com/sandlane/sandlane/controlplane/e2b"
	"github.com/sandlane/sandlane/credentials"
)

// apiKeys adapts the credentials' verifier to e2b.Keys. While the gateway does not serve
// it knows no key, so that no answer is made from an incomplete view.
type apiKeys struct {
	*credentials.Verifier
	serving func() bool
}

// Verify implements e2b.Keys.
func (k apiKeys) Verify(ctx context.Context, key string) (e2b.KeyOwner, error) {
	if !k.serving() {
		return e2b.KeyOwner{}, e2b.ErrKeysNotReady
	}
	id, err := k.Verifier.Verify(ctx, key)
	if errors.Is(err, credentials.ErrBadKey) {
		err = e2b.ErrKeyInvalid
	}
	return e2b.KeyOwner{Team: id.Team, Namespace: id.Namespace, KeyID: id.KeyID}, err
}
