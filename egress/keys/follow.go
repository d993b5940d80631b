package keys

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/credentials/certificate"
	"github.com/sandlane/sandlane/egress/seal"
)

const (
	// readEvery is how often a Follower reads the keys, and so how long a process may sign
	// with an authority that is no longer the current one.
	readEvery = 10 * time.Second
	// readTimeout bounds one such read.
	readTimeout = 5 * time.Second
)

// Follower has the keys as they are after each rotation. It is safe for concurrent use.
type Follower struct {
	api       client.Client
	namespace string
	log       *slog.Logger
	keys      atomic.Pointer[Keys]
}

// Follow loads the keys of the namespace (see Load); Start then keeps them current.
func Follow(ctx context.Context, c client.Client, namespace string, log *slog.Logger) (*Follower, error) {
	f := &Follower{api: c, namespace: namespace, log: log}
	return f, f.read(ctx)
}

func (f *Follower) read(ctx context.Context) error {
	keys, err := Load(ctx, f.api, f.namespace)
	if err == nil {
		f.keys.Store(keys)
	}
	return err
}

// Start reads the keys again and again until the context ends.
func (f *Follower) Start(ctx context.Context) error {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		reading, cancel := context.WithTimeout(ctx, readTimeout)
		err := f.read(reading)
		cancel()
		if err != nil && ctx.Err() == nil {
			f.log.Warn("the keys are as they were read before", "error", err)
		}
	}
}

// Authority returns the current authority.
func (f *Follower) Authority() *certificate.Pair { return f.keys.Load().Authority }

// Open is that of seal.Opener. What is sealed to a key that is not known is opened once the
// keys were read again: two rotations may have come since.
func (f *Follower) Open(place seal.Place, sealed []byte) ([]byte, error) {
	value, err := f.keys.Load().Opener.Open(place, sealed)
	if !errors.Is(err, seal.ErrNoKey) {
		return value, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	if unread := f.read(ctx); unread != nil {
		return nil, errors.Join(err, unread)
	}
	return f.keys.Load().Opener.Open(place, sealed)
}
