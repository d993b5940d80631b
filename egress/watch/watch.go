package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/egress/claims"
	"github.com/sandlane/sandlane/egress/seal"
	"github.com/sandlane/sandlane/kubeclient/backoff"
)

// Table is what the Watch tells; *claims.Table is one.
type Table interface {
	See(claims.Pod)
	Gone(uid string)
	PodsSeen(rv uint64)
	Drop(ctx context.Context) error
}

// Options configure a Watch. All are required.
type Options struct {
	// Client lists and watches; it must not be a cached one.
	Client client.WithWatch
	Table  Table
	// Open opens what is sealed for a place; *seal.Opener has it.
	Open func(seal.Place, []byte) ([]byte, error)
	Log  *slog.Logger
}

// Watch follows pods, sandboxes and secrets. Join and Stop are not called at the same time.
type Watch struct {
	o       Options
	state   *state
	secrets atomic.Pointer[secrets]
	stop    context.CancelFunc // of the watches that run
	ended   *sync.WaitGroup
}

// New returns a Watch that runs nothing until Join is called.
func New(o Options) *Watch { return &Watch{o: o, stop: func() {}, ended: &sync.WaitGroup{}} }

// Join forgets everything and lists anew, with consistent reads, and returns nil once the
// table was told all of it; the watches go on until the next Join or Stop. An error is the
// context's.
func (w *Watch) Join(ctx context.Context) error {
	w.Stop()
	if err := w.o.Table.Drop(ctx); err != nil {
		return err
	}
	w.state = newState(w.o.Table, w.o.Open, w.o.Log)
	known := newSecrets(w.o.Open, w.o.Log)
	w.secrets.Store(known)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop = stop
	logger := logr.FromSlogHandler(w.o.Log.Handler())
	running = klog.NewContext(running, logger)
	byName := labels.SelectorFromSet(labels.Set{v1alpha1.LabelEgress: string(v1alpha1.EgressByName)})
	follow := func(what string, expected client.Object, newList func() client.ObjectList, selector labels.Selector, s cache.ReflectorStore) {
		reflector := cache.NewReflectorWithOptions(w.lister(newList, selector), expected, s, cache.ReflectorOptions{
			Logger: &logger, Name: "egress/" + what, Backoff: backoff.Reconnecting(),
		})
		w.ended.Go(func() {
			for running.Err() == nil {
				reflector.RunWithContext(running)
			}
		})
	}
	follow("secrets", &v1alpha1.SandboxSecret{}, func() client.ObjectList { return &v1alpha1.SandboxSecretList{} }, nil, known)
	// The sandboxes come first: a pod's claim is its sandbox's.
	follow("sandboxes", &v1alpha1.Sandbox{}, func() client.ObjectList { return &v1alpha1.SandboxList{} }, nil, sandboxStore{w.state})
	follow("pods", &corev1.Pod{}, func() client.ObjectList { return &corev1.PodList{} }, byName, podStore{w.state})
	for what, listed := range map[string]chan struct{}{"secrets": known.listed, "sandboxes": w.state.sandboxesListed, "pods": w.state.podsListed} {
		select {
		case <-listed:
		case <-ctx.Done():
			return fmt.Errorf("wait for the first list of %s: %w", what, ctx.Err())
		}
	}
	return nil
}

// Reveal returns the value of a namespace's secret, by the name that rules call it. Its errors
// are for sandboxes and say nothing of a value. It is safe for concurrent use.
func (w *Watch) Reveal(namespace, name string) (string, error) {
	known := w.secrets.Load()
	if known == nil {
		return "", errNoSecret
	}
	return known.reveal(namespace, name)
}

// Stop ends the watches, and returns when the table is told nothing any more.
func (w *Watch) Stop() {
	w.stop()
	w.ended.Wait()
}

func (w *Watch) lister(newList func() client.ObjectList, selector labels.Selector) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			consistent(&o)
			list := newList()
			err := w.o.Client.List(ctx, list, &client.ListOptions{LabelSelector: selector, Limit: o.Limit, Continue: o.Continue, Raw: &o})
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			consistent(&o)
			return w.o.Client.Watch(ctx, newList(), &client.ListOptions{LabelSelector: selector, Raw: &o})
		},
	}
}

// consistent makes a list or watch that would accept data of any age a consistent one.
func consistent(o *metav1.ListOptions) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion = ""
		if o.SendInitialEvents == nil {
			o.ResourceVersionMatch = ""
		}
	}
}

var errType = errors.New("an object of another type")
