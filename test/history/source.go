package history

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	now := time.Now()
	err := meta.EachListItem(list, func(o runtime.Object) error {
		r.Event(watch.Event{Type: watch.Added, Object: o}, now)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %T: %w", list, err)
	}
	if !since.IsZero() {
		r.takeList(list, since, now)
	}
	w, err := toolswatch.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), s)
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", list, err)
	}
	return w, nil
}

// takeList takes in that a list has all that there is, after nothing was heard since a time.
func (r *Recorder) takeList(list client.ObjectList, since, now time.Time) {
	there := map[string]bool{}
	switch all := list.(type) {
	case *v1alpha1.SandboxList:
		for i := range all.Items {
			there[string(all.Items[i].UID)] = true
			r.givenUpUnseen(&all.Items[i], now)
		}
		r.listed(there, since, now)
	case *corev1.PodList:
		for i := range all.Items {
			there[string(all.Items[i].UID)] = true
		}
		r.listedPods(there, now)
	}
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
