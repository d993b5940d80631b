package cachetest

import (
	"context"
	"errors"
	"reflect"
	"sync"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/library/cache"
)

// server stores the objects of the fake client: it is client-go's tracker, with further
// behaviour of an API server. The fake client detects conflicts, before it writes here. Safe
// for concurrent use.
type server struct {
	clienttesting.ObjectTracker
	scheme *runtime.Scheme

	mu      sync.Mutex // held during a write and its events, so that streams have the order of the writes
	streams map[schema.GroupVersionResource][]*stream
}

func newServer(scheme *runtime.Scheme) *server {
	decoder := serializer.NewCodecFactory(scheme).UniversalDecoder()
	return &server{
		ObjectTracker: clienttesting.NewObjectTracker(scheme, decoder), scheme: scheme,
		streams: map[schema.GroupVersionResource][]*stream{},
	}
}

// client returns the fake client of the server, which has these objects.
func (s *server) client(objects []client.Object) client.Client {
	b := fake.NewClientBuilder().WithScheme(s.scheme).WithObjectTracker(s).WithGlobalResourceVersionCounter().
		WithStatusSubresource(&v1alpha1.Sandbox{}, &v1alpha1.SandboxPool{}, &v1alpha1.SandboxEnv{}, &v1alpha1.Checkpoint{}).
		WithInterceptorFuncs(interceptors())
	for _, f := range cache.GetIndexFuncs() {
		b = b.WithIndex(f.Obj, f.FieldName, f.Extract)
	}
	for _, o := range objects {
		b = b.WithObjects(o.DeepCopyObject().(client.Object))
	}
	return b.Build()
}

// refuse answers a JSON Patch that cannot be applied, for example because a test in it fails,
// as an API server does: with 422. It refuses server-side apply with errApply.
func refuse(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if p.Type() == types.ApplyPatchType {
		return errApply
	}
	err := c.Patch(ctx, o, p, opts...)
	if status := apierrors.APIStatus(nil); err == nil || p.Type() != types.JSONPatchType || errors.As(err, &status) {
		return err
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: 422, Reason: metav1.StatusReasonInvalid, Message: err.Error(),
	}}
}

// Add implements clienttesting.ObjectTracker.
func (s *server) Add(o runtime.Object) error {
	s.initialise(o)
	return s.ObjectTracker.Add(o)
}

// Create implements clienttesting.ObjectTracker.
func (s *server) Create(gvr schema.GroupVersionResource, o runtime.Object, ns string, opts ...metav1.CreateOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.initialise(o)
	if err := s.ObjectTracker.Create(gvr, o, ns, opts...); err != nil {
		return err
	}
	s.notify(gvr, watch.Added, o)
	return nil
}

// Update implements clienttesting.ObjectTracker.
func (s *server) Update(gvr schema.GroupVersionResource, o runtime.Object, ns string, opts ...metav1.UpdateOptions) error {
	return s.replace(gvr, o, ns, func() error { return s.ObjectTracker.Update(gvr, o, ns, opts...) })
}

// Patch implements clienttesting.ObjectTracker. The patch was applied before.
func (s *server) Patch(gvr schema.GroupVersionResource, o runtime.Object, ns string, opts ...metav1.PatchOptions) error {
	return s.replace(gvr, o, ns, func() error { return s.ObjectTracker.Patch(gvr, o, ns, opts...) })
}

func (s *server) replace(gvr schema.GroupVersionResource, o runtime.Object, ns string, write func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, err := meta.Accessor(o)
	if err != nil {
		return err
	}
	before, err := s.ObjectTracker.Get(gvr, ns, is.GetName())
	if err != nil {
		return err
	}
	was, err := meta.Accessor(before)
	if err != nil {
		return err
	}
	is.SetUID(was.GetUID())
	is.SetCreationTimestamp(was.GetCreationTimestamp())
	is.SetGeneration(was.GetGeneration())
	if !reflect.DeepEqual(spec(before), spec(o)) {
		is.SetGeneration(was.GetGeneration() + 1)
	}
	if err := write(); err != nil {
		return err
	}
	s.notify(gvr, watch.Modified, o)
	return nil
}

// Delete implements clienttesting.ObjectTracker.
func (s *server) Delete(gvr schema.GroupVersionResource, ns, name string, opts ...metav1.DeleteOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, err := s.ObjectTracker.Get(gvr, ns, name)
	if err != nil {
		return err
	}
	if err := s.ObjectTracker.Delete(gvr, ns, name, opts...); err != nil {
		return err
	}
	s.notify(gvr, watch.Deleted, last)
	return nil
}

// initialise sets the metadata that an API server sets on a new object.
func (s *server) initialise(o runtime.Object) {
	m, err := meta.Accessor(o)
	if err != nil {
		return // the tracker refuses it
	}
	if m.GetUID() == "" {
		m.SetUID(types.UID(uuid.NewString()))
	}
	if m.GetGeneration() == 0 {
		m.SetGeneration(1)
	}
	if m.GetCreationTimestamp().Time.IsZero() {
		m.SetCreationTimestamp(metav1.Now().Rfc3339Copy())
	}
}

// spec returns an object's spec, or nil if it has none.
func spec(o runtime.Object) any {
	if f := reflect.Indirect(reflect.ValueOf(o)).FieldByName("Spec"); f.IsValid() {
		return f.Interface()
	}
	return nil
}

// notify adds an event to the streams of a resource. mu is held.
func (s *server) notify(gvr schema.GroupVersionResource, kind watch.EventType, o runtime.Object) {
	for _, stream := range s.streams[gvr] {
		stream.add(watch.Event{Type: kind, Object: o.DeepCopyObject()})
	}
}
