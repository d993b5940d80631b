package idletimeout

import (
	"context"
	"errors"
	"fmt"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// feed tells which Sandboxes have changed, so that a check need not read them all.
type feed interface {
	// Start returns when Changed will return all Sandboxes that exist. It is called once,
	// before Changed.
	Start(ctx context.Context) error
	// Changed returns the Sandboxes that have changed since the last call, by name, as
	// they are now; nil for one that is gone. They must not be changed.
	Changed() map[string]*v1alpha1.Sandbox
}

// informed is the feed of a manager's cache.
type informed struct {
	informers cache.Informers

	mu      sync.Mutex
	changed map[string]*v1alpha1.Sandbox // guarded by mu
}

// Start implements feed.
func (f *informed) Start(ctx context.Context) error {
	informer, err := f.informers.GetInformer(ctx, &v1alpha1.Sandbox{})
	if err != nil {
		return fmt.Errorf("watching sandboxes: %w", err)
	}
	events, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { f.observe(o, false) },
		UpdateFunc: func(_, o any) { f.observe(o, false) },
		DeleteFunc: func(o any) { f.observe(o, true) },
	})
	if err != nil {
		return fmt.Errorf("watching sandboxes: %w", err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), events.HasSynced) {
		return errors.Join(errors.New("the watch of sandboxes has not begun"), informer.RemoveEventHandler(events))
	}
	context.AfterFunc(ctx, func() { _ = informer.RemoveEventHandler(events) })
	return nil
}

func (f *informed) observe(o any, gone bool) {
	if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	s, ok := o.(*v1alpha1.Sandbox)
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed == nil {
		f.changed = map[string]*v1alpha1.Sandbox{}
	}
	if gone {
		f.changed[s.Name] = nil
	} else {
		f.changed[s.Name] = s
	}
}

// Changed implements feed.
func (f *informed) Changed() map[string]*v1alpha1.Sandbox {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := f.changed
	f.changed = nil
	return changed
}
