package credentials

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// readPause is the least time between two reads of the keys. A key is known as
// the next one before any pod carries it, so that a read is needed only by a gateway
// that has missed a rotation.
const (
	readPause   = time.Second
	readTimeout = 2 * time.Second // of one read
)

// InitSigner signs with the cluster's InitKeys, which it reads with Load, and again when a pod
// carries a key that is not among them. Safe for concurrent use.
type InitSigner struct {
	client    client.Client // must not read from a cache
	namespace string
	keys      atomic.Pointer[InitKeys] // nil before Load

	again singleflight.Group // reads the keys again
	read  time.Time          // when refresh last read them; only the function run by again uses it
}

// NewInitSigner returns an InitSigner that has read no keys. namespace is the system's own. The
// client must not read from a cache.
func NewInitSigner(c client.Client, namespace string) *InitSigner {
	return &InitSigner{client: c, namespace: namespace}
}

// Load reads the keys, and makes the cluster's first ones.
func (s *InitSigner) Load(ctx context.Context) error {
	l, err := LoadInitKeys(ctx, s.client, s.namespace)
	if err != nil {
		return err
	}
	s.keys.Store(l)
	return nil
}

// Sign signs a message with the key of that ID. false means that there is none; an error, that
// it is not known whether there is.
func (s *InitSigner) Sign(ctx context.Context, keyID string, message []byte) (signature []byte, ok bool, err error) {
	for range 2 {
		if l := s.keys.Load(); l != nil {
			if signature, ok = l.Sign(keyID, message); ok {
				return signature, true, nil
			}
		}
		if err := s.refresh(ctx); err != nil {
			return nil, false, err
		}
	}
	return nil, false, nil
}

// refresh reads the keys again, unless that was just done. All callers that wait share one
// read, which outlasts those that leave.
func (s *InitSigner) refresh(ctx context.Context) error {
	done := s.again.DoChan("", func() (any, error) {
		if time.Since(s.read) < readPause {
			return nil, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
		defer cancel()
		err := s.Load(ctx)
		if err == nil {
			s.read = time.Now()
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
