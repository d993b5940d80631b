package gateway

import (
	"context"

	"github.com/sandlane/sandlane/credentials"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/routing"
)

// apiKeys adapts the credentials' verifier to restapi.Keys. While the gateway does not serve
// it knows no key, so that no answer is made from an incomplete view.
type apiKeys struct {
	*credentials.Verifier
	serving func() bool
}

// Verify implements restapi.Keys.
func (k apiKeys) Verify(ctx context.Context, key string) (routing.KeyOwner, error) {
	if !k.serving() {
		return routing.KeyOwner{}, restapi.ErrKeysNotReady
	}
	return k.Verifier.Verify(ctx, key)
}
