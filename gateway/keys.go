package gateway

import (
	"context"
	"errors"

	"github.com/sandlane/sandlane/credentials"
	"github.com/sandlane/sandlane/extproc"
)

// keys adapts the credentials' verifier to extproc.Keys.
type keys struct{ *credentials.Verifier }

// Verify implements extproc.Keys.
func (k keys) Verify(ctx context.Context, key string) (extproc.KeyOwner, error) {
	id, err := k.Verifier.Verify(ctx, key)
	if errors.Is(err, credentials.ErrBadKey) {
		err = extproc.ErrBadKey
	}
	return extproc.KeyOwner{Team: id.Team, Namespace: id.Namespace}, err
}
