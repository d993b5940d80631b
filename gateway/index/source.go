package index

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/kubeclient/backoff"
)

// The order of events:
//
// Each stream is applied by one goroutine (its Reflector's): first the record
// changes, then the hooks for the change are called, then the next event. PodsSeen
// comes after the hooks of every pod event up to its resourceVersion, bookmarks
// and lists included. Objects that are missing from a later list cause the same
// hooks as deleted ones. A resolve that reads a record before it changed and
// caches its route after loses against the hook, by the cache's tokens.

// source runs the Reflector of one kind, and starts a new one on demand.
type source struct {
	store    *store
	lw       *cache.ListWatch
	expected client.Object

	mu sync.Mutex
	// run counts the Reflectors started, listedRun is the last that completed a
	// list; cancel ends the one at work; listed is closed at the next list.
	run, listedRun uint64
	cancel         context.CancelFunc
	listed         chan struct{}
}

// newSource makes the source of objects of expected's kind. newList makes an
// empty list of them.
func newSource(c client.WithWatch, expected client.Object, newList func() client.ObjectList, selector labels.Selector, s *store) *source {
	src := &source{store: s, expected: expected, listed: make(chan struct{})}
	src.lw = &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			consistent(&o)
			list := newList()
			err := c.List(ctx, list, &client.ListOptions{LabelSelector: selector, Limit: o.Limit, Continue: o.Continue, Raw: &o})
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			consistent(&o)
			return c.Watch(ctx, newList(), &client.ListOptions{LabelSelector: selector, Raw: &o})
		},
	}
	return src
}

// consistent makes a list or watch that would accept data of any age a consistent one. A Reflector's first list without streaming asks for "0";
// a streaming one asks for "", which is consistent.
func consistent(o *metav1.ListOptions) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion = ""
		if o.SendInitialEvents == nil {
			o.ResourceVersionMatch = ""
		}
	}
}

// start runs Reflectors until the context ends.
func (s *source) start(ctx context.Context) {
	logger := logr.FromSlogHandler(s.store.log.Handler())
	ctx = klog.NewContext(ctx, logger)
	for ctx.Err() == nil {
		reflector := cache.NewReflectorWithOptions(s.lw, s.expected, s.store, cache.ReflectorOptions{
			Logger: &logger, Name: "index/" + s.store.kind, Backoff: backoff.Reconnecting(),
		})
		runCtx, cancel := context.WithCancel(ctx)
		s.mu.Lock()
		s.run++
		s.cancel = cancel
		s.mu.Unlock()
		reflector.RunWithContext(runCtx)
		cancel()
	}
}

// haveListed notes that the Reflector at work has completed a list.
func (s *source) haveListed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listedRun = s.run
	close(s.listed)
	s.listed = make(chan struct{})
}

// restart ends the Reflector at work, if any, and returns the number of the next.
func (s *source) restart() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		s.cancel()
	}
	return s.run + 1
}

func (s *source) synced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listedRun > 0
}

// wait returns nil once a Reflector of this number or a later one has listed.
func (s *source) wait(ctx context.Context, run uint64) error {
	for {
		s.mu.Lock()
		done, listed := s.listedRun >= run, s.listed
		s.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-listed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the first list of %s: %w", s.store.kind, context.Cause(ctx))
		}
	}
}
