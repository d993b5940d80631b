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
	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/routing"
)

// VerifierOptions are what NewVerifier needs.
type VerifierOptions struct {
	// Secrets reads and watches the Secrets with the keys. Required.
	Secrets clientcorev1.SecretInterface
	// Namespaces watches the namespaces that keys belong to. Required.
	Namespaces clientcorev1.NamespaceInterface
	// Metrics may be nil.
	Metrics *Metrics
	// Log is slog.Default() if nil.
	Log *slog.Logger
}

// Verifier tells the owner of an API key, from memory: it watches the Secrets
// of the keys and no others, and all namespaces, since a key ends with its own. There is no cache of verified keys, since checking
// one costs a map lookup and a SHA-256 over 60 bytes.
type Verifier struct {
	o          VerifierOptions
	keys       *keyring
	namespaces *namespaces

	mu sync.Mutex
	// cancel ends the reflectors at work, and Start begins others; guarded by mu.
	cancel context.CancelFunc
}

// NewVerifier returns a verifier that knows no key until Start runs.
func NewVerifier(o VerifierOptions) *Verifier {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Verifier{o: o, keys: newKeyring(o.Log), namespaces: newNamespaces()}
}

// Start watches keys and namespaces until ctx is over; it then returns nil. It is a
// manager.Runnable; call it once.
func (v *Verifier) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		run, cancel := context.WithCancel(ctx)
		v.mu.Lock()
		v.cancel = cancel
		v.mu.Unlock()
		var both sync.WaitGroup
		both.Go(func() { reflector("api-keys", v.secretSource(), &corev1.Secret{}, v.keys).RunWithContext(run) })
		both.Go(func() {
			reflector("namespaces", v.namespaceSource(), &corev1.Namespace{}, v.namespaces).RunWithContext(run)
		})
		both.Wait()
		cancel()
	}
	return nil
}

func reflector(name string, source cache.ListerWatcher, kind runtime.Object, into cache.ReflectorStore) *cache.Reflector {
	return cache.NewReflectorWithOptions(source, kind, into, cache.ReflectorOptions{Name: name, Backoff: backoff.Reconnecting()})
}

// newest makes a first list, which may be as old as it likes, one of now.
func newest(o *metav1.ListOptions) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion = ""
	}
}

func (v *Verifier) secretSource() cache.ListerWatcher {
	only := func(o *metav1.ListOptions) {
		o.LabelSelector = v1alpha1.LabelAPIKey
		newest(o)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			only(&o)
			return v.o.Secrets.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			only(&o)
			return v.o.Secrets.Watch(ctx, o)
		},
	}
}

func (v *Verifier) namespaceSource() cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			newest(&o)
			return v.o.Namespaces.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			newest(&o)
			return v.o.Namespaces.Watch(ctx, o)
		},
	}
}

// Relist has keys and namespaces listed anew, for a gateway that joins again: after a restore of
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

// Synced reports whether the first lists of keys and namespaces have been read.
func (v *Verifier) Synced() bool { return closed(v.keys.synced) && closed(v.namespaces.synced) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// WaitSynced returns nil once Synced, or an error if ctx is over sooner.
func (v *Verifier) WaitSynced(ctx context.Context) error {
	for _, synced := range []chan struct{}{v.keys.synced, v.namespaces.synced} {
		select {
		case <-synced:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the list of API keys: %w", context.Cause(ctx))
		}
	}
	return nil
}

// Verify returns the owner of a key. It returns routing.ErrBadKey for a key that is
// not valid, or whose namespace is gone. Before the first lists have been read it waits
// for them, and returns another error if ctx is over sooner. Apart from that it does not block
// and does not leave the process. It is safe for concurrent use.
//
// The time it takes depends on the key's ID and not on the secret part of a key.
func (v *Verifier) Verify(ctx context.Context, key string) (routing.KeyOwner, error) {
	if err := v.WaitSynced(ctx); err != nil {
		return routing.KeyOwner{}, err
	}
	id, ok := keyID(key)
	if !ok {
		v.o.Metrics.verified(outcomeMalformed)
		return routing.KeyOwner{}, routing.ErrBadKey
	}
	r := v.keys.get(id)
	if r == nil {
		v.o.Metrics.verified(outcomeUnknown)
		return routing.KeyOwner{}, routing.ErrBadKey
	}
	if !r.matches(key) {
		v.o.Metrics.verified(outcomeWrong)
		return routing.KeyOwner{}, routing.ErrBadKey
	}
	if !v.namespaces.is(r.Namespace, r.namespaceUID) {
		v.o.Metrics.verified(outcomeEnded)
		return routing.KeyOwner{}, routing.ErrBadKey
	}
	v.o.Metrics.verified(outcomeValid)
	owner := r.KeyOwner
	owner.NamespaceUID = r.namespaceUID
	return owner, nil
}
