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
	// Config says which objects the informers have.
	Config
	// Manager has the other options of the manager. NewControllerManager sets its
	// Cache.ByObject. Without a Scheme the manager knows Kubernetes' and Sandlane's kinds;
	// without Metrics.BindAddress it serves no metrics.
	Manager ctrl.Options
}

// OwnedManager is a manager that its Cache starts and ends. The program may add controllers
// of its own before Run.
type OwnedManager struct {
	ctrl.Manager
	ending *ending
}

func (*OwnedManager) owned() {}

// Start implements manager.Manager. It returns when ctx ends, also if the informers have not
// listed all objects yet.
func (m *OwnedManager) Start(ctx context.Context) error {
	forget := context.AfterFunc(ctx, m.ending.begin)
	defer forget()
	return m.Manager.Start(ctx)
}

// NewControllerManager makes a manager for NewCache, with the informers of
// BuildCacheConfig. The manager ends, and with it the Cache, when its informers turn out to
// be ahead of an API server that was restored from a backup: only new informers would see
// what is written after that.
func NewControllerManager(cfg *rest.Config, o ManagerOptions) (*OwnedManager, error) {
	opts := o.Manager
	if opts.Scheme == nil {
		opts.Scheme = runtime.NewScheme()
		if err := errors.Join(clientgoscheme.AddToScheme(opts.Scheme), v1alpha1.AddToScheme(opts.Scheme)); err != nil {
			return nil, fmt.Errorf("making the scheme: %w", err)
		}
	}
	if opts.Metrics.BindAddress == "" {
		opts.Metrics.BindAddress = "0" // controller-runtime takes an empty address for its default port
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

// ending has a context that ends when the manager begins to end.
type ending struct {
	ctx   context.Context
	begin context.CancelFunc
}

// endable is a cache whose manager can be ended before the cache has synced. Without it, a
// manager whose context ends while it waits for the cache would loop for ever, since it
// waits until WaitForCacheSync returns true.
type endable struct {
	ctrlcache.Cache
	ending *ending
}

// WaitForCacheSync returns true once the cache has synced, or its manager ends.
func (c endable) WaitForCacheSync(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	forget := context.AfterFunc(c.ending.ctx, cancel)
	defer forget()
	return c.Cache.WaitForCacheSync(ctx) || c.ending.ctx.Err() != nil
}
