package cachetest

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient"
	"github.com/sandlane/sandlane/library/cache"
)

// MockManager is an owned manager, for cache.NewCache, whose API server is in memory.
type MockManager struct {
	*cache.OwnedManager
	api client.Client
}

// GetAPIReader returns a reader of the API server in memory.
func (m *MockManager) GetAPIReader() client.Reader { return m.api }

// API returns a client of the API server that reads nothing from informers. Use it for the
// writes of other processes.
func (m *MockManager) API() client.Client { return m.api }

// GetMockManager makes a manager whose API server has these objects, with the informers of
// the configuration.
func GetMockManager(t testing.TB, config cache.Config, objects ...client.Object) *MockManager {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	server := newServer(scheme)
	api := server.client(objects)
	mgr, err := cache.NewControllerManager(&rest.Config{Host: "http://in.memory.invalid", Transport: noNetwork{}}, cache.ManagerOptions{
		Config: config,
		Manager: ctrl.Options{
			Scheme: scheme,
			MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
				return kubeclient.RESTMapper(scheme), nil
			},
			NewCache: func(cfg *rest.Config, o ctrlcache.Options) (ctrlcache.Cache, error) {
				o.NewInformer = func(_ toolscache.ListerWatcher, kind runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
					return toolscache.NewSharedIndexInformer(server.listWatch(kind, o.ByObject), kind, resync, indexers)
				}
				return ctrlcache.New(cfg, o)
			},
			NewClient: func(_ *rest.Config, o client.Options) (client.Client, error) {
				return readsElsewhere{api, o.Cache.Reader}, nil
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &MockManager{mgr, api}
}

// New makes a Cache of such a manager and runs it until the test ends. It also returns a
// client of its API server (MockManager.API).
func New(t testing.TB, config cache.Config, objects ...client.Object) (*cache.Cache, client.Client) {
	t.Helper()
	mgr := GetMockManager(t, config, objects...)
	c, err := cache.NewCache(mgr)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context()) // t.Context ends before the cleanup
	if err := c.Run(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Stop(ctx) })
	return c, mgr.API()
}

// noNetwork fails each request: all must go to the API server in memory.
type noNetwork struct{}

// RoundTrip implements http.RoundTripper.
func (noNetwork) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("cachetest has no network")
}

// readsElsewhere writes to the API server and reads from the informers.
type readsElsewhere struct {
	client.Client
	reader client.Reader
}

// Get implements client.Reader.
func (c readsElsewhere) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return c.reader.Get(ctx, key, o, opts...)
}

// List implements client.Reader.
func (c readsElsewhere) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.reader.List(ctx, list, opts...)
}
