package history

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// source is one kind of objects to watch.
type source struct {
	c       client.WithWatch
	list    func() client.ObjectList
	options []client.ListOption
}

// start takes in what is there and watches every change from then on; nothing was
// heard since a time (zero: ever). The API server ends the watch of a client that
// is slow, as one on a busy machine is; it goes on where it was, and fails if that
// is not possible.
func (s source) start(ctx context.Context, r *Recorder, since time.Time) (watch.Interface, error) {
	list := s.list()
	if err := s.c.List(ctx, list, s.options...); err != nil {
		return nil, fmt.Errorf("list %T: %w", list, err)
	}
	if err := r.takeList(list, since, time.Now()); err != nil {
		return nil, fmt.Errorf("read %T: %w", list, err)
	}
	w, err := toolswatch.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), s)
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", list, err)
	}
	return w, nil
}

// takeList takes in what a list has, and, where nothing was heard since a time that is not
// zero, that this is all there is.
func (r *Recorder) takeList(list client.ObjectList, since, now time.Time) error {
	there := map[string]bool{}
	err := meta.EachListItem(list, func(o runtime.Object) error {
		if s, ok := o.(*v1alpha1.Sandbox); ok && !since.IsZero() {
			r.givenUpUnseen(s, now)
		}
		r.Event(watch.Event{Type: watch.Added, Object: o}, now)
		there[string(o.(client.Object).GetUID())] = true
		return nil
	})
	if err != nil || since.IsZero() {
		return err
	}
	if _, ok := list.(*v1alpha1.SandboxList); ok {
		r.listed(there, since, now)
	} else {
		r.listedPods(there, now)
	}
	return nil
}

// WatchWithContext is what the retrying watcher calls. That retries for ever what
// the API server refuses as too old; as an event it gives up.
func (s source) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := s.c.Watch(ctx, s.list(), append([]client.ListOption{&client.ListOptions{Raw: &o}}, s.options...)...)
	var refused *apierrors.StatusError
	if errors.As(err, &refused) && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err)) {
		gone := watch.NewFakeWithChanSize(1, false)
		gone.Error(&refused.ErrStatus)
		return gone, nil
	}
	return w, err
}
