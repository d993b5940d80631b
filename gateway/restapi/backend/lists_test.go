package backend

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/test/bubble"
	"github.com/sandlane/sandlane/test/kubetest"
)

// slowLists is an API server on which every list waits until it is let go.
func slowLists(t *testing.T) (x *Backend, begun func() int, letGo chan struct{}) {
	t.Helper()
	var mu sync.Mutex
	n, letGo := 0, make(chan struct{})
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(kubetest.Scheme()).Build(), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			mu.Lock()
			n++
			mu.Unlock()
			<-letGo
			return nil
		},
	})
	begun = func() int { mu.Lock(); defer mu.Unlock(); return n }
	return New(Options{API: c, Cache: routecache.New(8)}), begun, letGo
}

// However many lists one key has asked for, another's begins at once; and the many
// are begun four at a time.
func TestListsOfOneKeyDoNotHoldUpAnother(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x, begun, letGo := slowLists(t)
		var asking sync.WaitGroup
		list := func(owner string) {
			asking.Go(func() {
				if _, err := x.List(t.Context(), owner, ""); err != nil {
					t.Errorf("a list of %s: %v", owner, err)
				}
			})
			synctest.Wait()
		}
		const many = 20
		for range many {
			list("greedy")
		}
		if n := begun(); n != maxLists {
			t.Errorf("%d lists of one key are under way, want %d", n, maxLists)
		}
		list("other")
		if n := begun(); n != maxLists+1 {
			t.Errorf("%d lists are under way, want those of the one key and the other's", n)
		}
		close(letGo)
		asking.Wait()
		if n := begun(); n != many+1 {
			t.Errorf("%d lists were made, want %d", n, many+1)
		}
		if n := len(x.lists.byKey); n != 0 {
			t.Errorf("%d keys without a list are remembered", n)
		}
	})
}

// A caller that stops waiting takes no place.
func TestListGivesUpWithItsCaller(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x, begun, letGo := slowLists(t)
		var asking sync.WaitGroup
		for range maxLists {
			asking.Go(func() { _, _ = x.List(t.Context(), "team", "") })
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() { _, err := x.List(ctx, "team", ""); gone <- err }()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("one that waited returned %v", err)
		}
		close(letGo)
		asking.Wait()
		if begun() != maxLists || len(x.lists.byKey) != 0 {
			t.Errorf("%d lists were made, %d keys are remembered", begun(), len(x.lists.byKey))
		}
	})
}
