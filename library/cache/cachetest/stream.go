package cachetest

import (
	"context"
	"reflect"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// errListAnew makes an informer list again, because a watch can begin only after a list.
var errListAnew = apierrors.NewResourceExpired("a watch follows a list")

// listWatch returns the ListerWatcher with which an informer of a kind lists and watches the
// server, with the selectors of its configuration. A watch has all events since its list.
func (s *server) listWatch(kind runtime.Object, by map[client.Object]ctrlcache.ByObject) toolscache.ListerWatcher {
	w := &listWatch{server: s, matches: func(runtime.Object) bool { return true }}
	for o, config := range by {
		if reflect.TypeOf(o) == reflect.TypeOf(kind) {
			w.matches = func(o runtime.Object) bool { return selected(o, config.Label, config.Field) }
		}
	}
	gvk, err := apiutil.GVKForObject(kind, s.scheme)
	if err != nil {
		panic("cachetest: " + err.Error()) // the manager has made an informer of it
	}
	w.kind = gvk
	w.resource, _ = meta.UnsafeGuessKindToResource(gvk)
	return w
}

type listWatch struct {
	server   *server
	kind     schema.GroupVersionKind
	resource schema.GroupVersionResource
	matches  func(runtime.Object) bool

	mu   sync.Mutex
	next *stream // for the next watch; it has the events since the last list
}

// IsWatchListSemanticsUnSupported makes informers list before they watch.
func (*listWatch) IsWatchListSemanticsUnSupported() bool { return true }

// List implements toolscache.Lister.
func (w *listWatch) List(metav1.ListOptions) (runtime.Object, error) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	list, err := w.server.ObjectTracker.List(w.resource, w.kind, metav1.NamespaceAll)
	if err != nil {
		return nil, err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	items = slices.DeleteFunc(items, func(o runtime.Object) bool { return !w.matches(o) })
	if err := meta.SetList(list, items); err != nil {
		return nil, err
	}
	stream := newStream(w)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next != nil {
		w.next.stop()
	}
	w.next = stream
	w.server.streams[w.resource] = append(w.server.streams[w.resource], stream)
	return list, nil
}

// Watch implements toolscache.Watcher.
func (w *listWatch) Watch(metav1.ListOptions) (watch.Interface, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	stream := w.next
	w.next = nil
	if stream == nil { // there was no list before this watch
		return nil, errListAnew
	}
	go stream.run()
	return stream, nil
}

// selected reports whether a label and a field selector select an object.
func selected(o runtime.Object, label labels.Selector, field fields.Selector) bool {
	m, err := meta.Accessor(o)
	if err != nil {
		return false
	}
	of := fields.Set{"metadata.name": m.GetName(), "metadata.namespace": m.GetNamespace()}
	if s, ok := o.(*v1alpha1.Sandbox); ok {
		of[v1alpha1.FieldNamespace] = s.Spec.Namespace
	}
	return (label == nil || label.Matches(labels.Set(m.GetLabels()))) && (field == nil || field.Matches(of))
}

// stream is one watch. Its queue is unbounded, so that no writer waits for an informer.
type stream struct {
	of     *listWatch
	result chan watch.Event
	ctx    context.Context
	cancel context.CancelFunc

	arrived chan struct{} // has one element while the queue may have events

	mu    sync.Mutex // guards queue
	queue []watch.Event
}

func newStream(w *listWatch) *stream {
	ctx, cancel := context.WithCancel(context.Background())
	return &stream{of: w, result: make(chan watch.Event), ctx: ctx, cancel: cancel, arrived: make(chan struct{}, 1)}
}

// add queues an event if the informer's selectors select the object, now or before.
func (s *stream) add(e watch.Event) {
	if !s.of.matches(e.Object) {
		if e.Type != watch.Modified {
			return
		}
		e.Type = watch.Deleted // the object may have been selected before; if not, the informer ignores the event
	}
	s.mu.Lock()
	s.queue = append(s.queue, e)
	s.mu.Unlock()
	select {
	case s.arrived <- struct{}{}:
	default:
	}
}

// run sends the events to the informer until the watch is stopped.
func (s *stream) run() {
	defer close(s.result)
	for {
		s.mu.Lock()
		queue := s.queue
		s.queue = nil
		s.mu.Unlock()
		for _, e := range queue {
			select {
			case s.result <- e:
			case <-s.ctx.Done():
				return
			}
		}
		select {
		case <-s.arrived:
		case <-s.ctx.Done():
			return
		}
	}
}

// ResultChan implements watch.Interface.
func (s *stream) ResultChan() <-chan watch.Event { return s.result }

// Stop implements watch.Interface.
func (s *stream) Stop() {
	server := s.of.server
	server.mu.Lock()
	defer server.mu.Unlock()
	s.stop()
}

// stop ends the watch and removes it from the server, whose mu is held.
func (s *stream) stop() {
	s.cancel()
	all := s.of.server.streams
	all[s.of.resource] = slices.DeleteFunc(all[s.of.resource], func(o *stream) bool { return o == s })
}
