package console

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// kind is one kind of object that is watched.
type kind struct {
	name      string // for people
	object    client.Object
	list      func() client.ObjectList
	namespace string          // empty: all
	labels    labels.Selector // nil: all
	fields    string

	informer cache.SharedIndexInformer
	mu       sync.Mutex
	refused  string // why it cannot be listed or watched; empty if it can
}

// has selects objects with a label.
func has(label string) labels.Selector {
	r, err := labels.NewRequirement(label, selection.Exists, nil)
	if err != nil {
		panic(err) // a label of ours is malformed: a slip in package v1alpha1
	}
	return labels.NewSelector().Add(*r)
}

func kindsOf(systemNamespace string) map[string]*kind {
	return map[string]*kind{
		"sandboxes":   {name: "sandboxes", object: &v1alpha1.Sandbox{}, list: func() client.ObjectList { return &v1alpha1.SandboxList{} }},
		"pools":       {name: "pools", object: &v1alpha1.SandboxPool{}, list: func() client.ObjectList { return &v1alpha1.SandboxPoolList{} }},
		"envs":        {name: "envs", object: &v1alpha1.SandboxEnv{}, list: func() client.ObjectList { return &v1alpha1.SandboxEnvList{} }},
		"checkpoints": {name: "checkpoints", object: &v1alpha1.Checkpoint{}, list: func() client.ObjectList { return &v1alpha1.CheckpointList{} }},
		"leases": {name: "leases of gateways", object: &coordinationv1.Lease{}, list: func() client.ObjectList { return &coordinationv1.LeaseList{} },
			namespace: systemNamespace, labels: has(v1alpha1.LabelGateway)},
		"events": {name: "events", object: &corev1.Event{}, list: func() client.ObjectList { return &corev1.EventList{} },
			fields: "type=" + corev1.EventTypeWarning},
	}
}

// watch makes the kind's informer. changed is called for each change.
func (k *kind) watch(api client.WithWatch, changed func()) error {
	options := func(o metav1.ListOptions) *client.ListOptions {
		o.FieldSelector = k.fields
		if k.labels != nil {
			o.LabelSelector = k.labels.String()
		}
		// Of both sources the client takes the typed one for a namespace, and Raw for all else.
		return &client.ListOptions{Namespace: k.namespace, Raw: &o}
	}
	k.informer = cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := k.list()
			err := api.List(ctx, list, options(o))
			if k.note(err) {
				changed()
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := api.Watch(ctx, k.list(), options(o))
			if k.note(err) {
				changed()
			}
			return w, err
		},
	}, k.object, 0, cache.Indexers{})
	err := k.informer.SetTransform(func(o any) (any, error) {
		if m, err := meta.Accessor(o); err == nil {
			m.SetManagedFields(nil)
		}
		return o, nil
	})
	if err != nil {
		return fmt.Errorf("watch %s: %w", k.name, err)
	}
	// The state of the watch is shown on the page: it is no error of this process's log.
	if err := k.informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
		return fmt.Errorf("watch %s: %w", k.name, err)
	}
	_, err = k.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() }, DeleteFunc: func(any) { changed() },
	})
	if err != nil {
		return fmt.Errorf("watch %s: %w", k.name, err)
	}
	return nil
}

// note keeps why the kind cannot be read; true if that has changed. That the API server is
// away is noted for all kinds together (reach).
func (k *kind) note(err error) bool {
	why := ""
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) {
		why = err.Error()
	} else if err != nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	changed := k.refused != why
	k.refused = why
	return changed
}

// refusal says why the kind cannot be read; empty if it can.
func (k *kind) refusal() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.refused
}

// objects are those of a kind in the order of namespaces and names. They must not be
// changed.
func objects[T client.Object](k *kind) []T {
	var all []T
	for _, o := range k.informer.GetStore().List() {
		if t, ok := o.(T); ok {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b T) int {
		if c := strings.Compare(a.GetNamespace(), b.GetNamespace()); c != 0 {
			return c
		}
		return strings.Compare(a.GetName(), b.GetName())
	})
	return all
}
