package credentials

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/backoff"
)

// VerifierOptions are what NewVerifier needs.
type VerifierOptions struct {
	// Secrets reads and watches the Secrets with the keys. Required.
	Secrets clientcorev1.SecretInterface
	// Metrics may be nil.
	Metrics *Metrics
	// Log is slog.Default() if nil.
	Log *slog.Logger
}

// Verifier tells the owner of an API key, from memory: it watches the Secrets
// of the keys and no others. There is no cache of verified keys, since checking
// one costs a map lookup and a SHA-256 over 60 bytes.
type Verifier struct {
	secrets clientcorev1.SecretInterface
	metrics *Metrics
	keys    *keyring

	mu sync.Mutex
	// cancel ends the reflector at work, and Start begins another; guarded by mu.
	cancel context.CancelFunc
}

// NewVerifier returns a verifier that knows no key until Start runs.
func NewVerifier(o VerifierOptions) *Verifier {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Verifier{secrets: o.Secrets, metrics: o.Metrics, keys: newKeyring(o.Log)}
}

// Start watches the keys until ctx is over; it then returns nil. It is a
// manager.Runnable; call it once.
func (v *Verifier) Start(ctx context.Context) error {
	only := func(o *metav1.ListOptions) {
		o.LabelSelector = v1alpha1.LabelAPIKey
		if o.ResourceVersion == "0" { // a first list, which may be as old as it likes
			o.ResourceVersion = ""
		}
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			only(&o)
			return v.secrets.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			only(&o)
			return v.secrets.Watch(ctx, o)
		},
	}
	for ctx.Err() == nil {
		reflector := cache.NewReflectorWithOptions(source, &corev1.Secret{}, v.keys, cache.ReflectorOptions{
			Name: "api-keys", Backoff: backoff.Reconnecting(),
		})
		run, cancel := context.WithCancel(ctx)
		v.mu.Lock()
		v.cancel = cancel
		v.mu.Unlock()
		reflector.RunWithContext(run)
		cancel()
	}
	return nil
}

// Relist has the keys listed anew, for a gateway that joins again: after a restore of
// etcd the watch is silent. The keys that are known count until the list is in, which
// is not waited for. It does nothing before the first list.
func (v *Verifier) Relist() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.cancel != nil && v.Synced() {
		v.cancel()
	}
}

// NeedLeaderElection says that every gateway verifies keys.
func (v *Verifier) NeedLeaderElection() bool { return false }

// Synced reports whether the first list of keys has been read.
func (v *Verifier) Synced() bool {
	select {
	case <-v.keys.synced:
		return true
	default:
		return false
	}
}

// WaitSynced returns nil once the first list of keys has been read, or an error
// if ctx is over sooner.
func (v *Verifier) WaitSynced(ctx context.Context) error {
	select {
	case <-v.keys.synced:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the list of API keys: %w", context.Cause(ctx))
	}
}

// Verify returns the owner of a key. It returns ErrBadKey for a key that is
// not valid. Before the first list of keys has been read it waits for it, and
// returns another error if ctx is over sooner. Apart from that it does not block
// and does not leave the process. It is safe for concurrent use.
//
// The time it takes depends on the key's ID and not on the secret part of a key.
func (v *Verifier) Verify(ctx context.Context, key string) (KeyOwner, error) {
	if err := v.WaitSynced(ctx); err != nil {
		return KeyOwner{}, err
	}
	id, ok := keyID(key)
	if !ok {
		v.metrics.verified(outcomeMalformed)
		return KeyOwner{}, ErrBadKey
	}
	r := v.keys.get(id)
	if r == nil {
		v.metrics.verified(outcomeUnknown)
		return KeyOwner{}, ErrBadKey
	}
	if !r.matches(key) {
		v.metrics.verified(outcomeWrong)
		return KeyOwner{}, ErrBadKey
	}
	v.metrics.verified(outcomeValid)
	return r.KeyOwner, nil
}
