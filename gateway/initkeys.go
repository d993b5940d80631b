package gateway

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/credentials"
)

// initKeysPause is the least time between two reads of the keys. A key is known as
// the next one before any pod carries it, so that a read is needed only by a gateway
// that has missed a rotation.
const (
	initKeysPause   = time.Second
	initKeysTimeout = 2 * time.Second // of one read
)

// initKeys adapts the credentials' init keys to agent.Signer. They are read when the
// gateway joins, and again when a pod carries a key that is not among them. Safe for
// concurrent use.
type initKeys struct {
	client    client.Client // must not read from a cache
	namespace string
	loaded    atomic.Pointer[credentials.InitKeys]

	again singleflight.Group // reads the keys again
	read  time.Time          // when refresh last read them; only the function run by again uses it
}

// load reads the keys, and makes the cluster's first ones.
func (k *initKeys) load(ctx context.Context) error {
	l, err := credentials.LoadInitKeys(ctx, k.client, k.namespace)
	if err != nil {
		return err
	}
	k.loaded.Store(l)
	return nil
}

// Sign implements agent.Signer.
func (k *initKeys) Sign(ctx context.Context, keyID string, message []byte) (signature []byte, ok bool, err error) {
	for range 2 {
		if l := k.loaded.Load(); l != nil {
			if signature, ok = l.Sign(keyID, message); ok {
				return signature, true, nil
			}
		}
		if err := k.refresh(ctx); err != nil {
			return nil, false, err
		}
	}
	return nil, false, nil
}

// refresh reads the keys again, unless that was just done. All callers that wait share one
// read, which outlasts those that leave.
func (k *initKeys) refresh(ctx context.Context) error {
	done := k.again.DoChan("", func() (any, error) {
		if time.Since(k.read) < initKeysPause {
			return nil, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), initKeysTimeout)
		defer cancel()
		err := k.load(ctx)
		if err == nil {
			k.read = time.Now()
		}
		return nil, err
	})
	select {
	case r := <-done:
		return r.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}
