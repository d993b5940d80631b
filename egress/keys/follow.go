package keys

import (
	"context"
	"errors"
	"log/slog"
	"sync"
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
	// readPause is the least time between two reads for what is sealed to a key that is not
	// known: a sandbox may ask for such a value as often as it connects.
	readPause = time.Second
)

// Follower has the keys as they are after each rotation. It is safe for concurrent use.
type Follower struct {
	api       client.Client
	namespace string
	log       *slog.Logger
	keys      atomic.Pointer[Keys]

	again sync.Mutex // held by the read for a key that is not known, which others wait for
	tried time.Time  // when such a read last ended; guarded by again
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
// keys were read again, at most each readPause: two rotations may have come since.
func (f *Follower) Open(place seal.Place, sealed []byte) ([]byte, error) {
	value, err := f.keys.Load().Opener.Open(place, sealed)
	if !errors.Is(err, seal.ErrNoKey) {
		return value, err
	}
	if unread := f.readAgain(); unread != nil {
		return nil, errors.Join(err, unread)
	}
	return f.keys.Load().Opener.Open(place, sealed)
}

// readAgain reads the keys, unless that was tried just now.
func (f *Follower) readAgain() error {
	f.again.Lock()
	defer f.again.Unlock()
	if time.Since(f.tried) < readPause {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	err := f.read(ctx)
	f.tried = time.Now()
	return err
}
