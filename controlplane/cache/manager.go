package cache

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient"
)

// ManagerOptions are the options of NewControllerManager. The zero value works.
type ManagerOptions struct {
	// Config says what is informed of.
	Config
	// Manager is the rest of the manager's options. Its ByObject is set here; without a
	// Scheme it knows Kubernetes' and our kinds; without an address it serves no metrics.
	Manager ctrl.Options
}

// OwnedManager is a manager that the Cache made of it starts and ends. The program may add
// controllers of its own before Run.
type OwnedManager struct {
	ctrl.Manager
	ending *ending
}

func (*OwnedManager) owned() {}

// Start implements manager.Manager. It ends with its context, whatever is not filled then.
func (m *OwnedManager) Start(ctx context.Context) error {
	forget := context.AfterFunc(ctx, m.ending.begin)
	defer forget()
	return m.Manager.Start(ctx)
}

// NewControllerManager makes a manager whose informers are those of BuildCacheConfig, for
// NewCache. It ends, and with it the Cache, when its informers turn out to be ahead of an
// API server that was restored: nothing but new ones would see what is written then.
func NewControllerManager(cfg *rest.Config, o ManagerOptions) (*OwnedManager, error) {
	opts := o.Manager
	if opts.Scheme == nil {
		opts.Scheme = runtime.NewScheme()
		if err := errors.Join(clientgoscheme.AddToScheme(opts.Scheme), v1alpha1.AddToScheme(opts.Scheme)); err != nil {
			return nil, fmt.Errorf("making the scheme: %w", err)
		}
	}
	if opts.Metrics.BindAddress == "" {
		opts.Metrics.BindAddress = "0" // empty is a port there
	}
	config := BuildCacheConfig(o.Config)
	opts.Cache.ByObject, opts.Cache.DefaultTransform = config.ByObject, config.DefaultTransform
	opts.Cache.ReaderFailOnMissingInformer = config.ReaderFailOnMissingInformer
	ending := &ending{}
	ending.ctx, ending.begin = context.WithCancel(context.Background())
	newCache := opts.NewCache
	if newCache == nil {
		newCache = ctrlcache.New
	}
	opts.NewCache = func(cfg *rest.Config, o ctrlcache.Options) (ctrlcache.Cache, error) {
		c, err := newCache(cfg, o)
		return endable{c, ending}, err
	}
	mgr, err := ctrl.NewManager(cfg, opts)
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	for kind := range config.ByObject {
		if _, err := mgr.GetCache().GetInformer(context.Background(), kind, ctrlcache.BlockUntilSynced(false)); err != nil {
			return nil, fmt.Errorf("making the informer of %T: %w", kind, err)
		}
	}
	err = mgr.Add(&kubeclient.RewindGuard{
		Caches: mgr.GetCache(), Live: mgr.GetAPIReader(),
		Kinds: []kubeclient.Kind{{Object: &v1alpha1.Sandbox{}, List: &v1alpha1.SandboxList{}}},
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	return &OwnedManager{mgr, ending}, nil
}

// ending has a context that ends when a manager begins to end.
type ending struct {
	ctx   context.Context
	begin context.CancelFunc
}

// endable is a cache whose manager can be ended before it is filled. One whose context
// ends while it waits for a cache turns in a loop for ever, on a whole processor, unless
// the cache says that it is filled.
type endable struct {
	ctrlcache.Cache
	ending *ending
}

// WaitForCacheSync returns true once the cache is filled, or its manager ends.
func (c endable) WaitForCacheSync(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	forget := context.AfterFunc(c.ending.ctx, cancel)
	defer forget()
	return c.Cache.WaitForCacheSync(ctx) || c.ending.ctx.Err() != nil
}
