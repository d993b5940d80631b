package gateway

import (
	"context"
	"errors"

	"github.com/sandlane/sandlane/credentials"
	"github.com/sandlane/sandlane/gateway/restapi"
)

// apiKeys adapts the credentials' verifier to restapi.Keys. While the gateway does not serve
// it knows no key, so that no answer is made from an incomplete view.
type apiKeys struct {
	*credentials.Verifier
	serving func() bool
}

// Verify implements restapi.Keys.
func (k apiKeys) Verify(ctx context.Context, key string) (restapi.KeyOwner, error) {
	if !k.serving() {
		return restapi.KeyOwner{}, restapi.ErrKeysNotReady
	}
	id, err := k.Verifier.Verify(ctx, key)
	if errors.Is(err, credentials.ErrBadKey) {
		err = restapi.ErrKeyInvalid
	}
	return restapi.KeyOwner{Team: id.Team, Namespace: id.Namespace, KeyID: id.KeyID, NamespaceUID: id.NamespaceUID}, err
}
