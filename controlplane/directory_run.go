package controlplane

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/sandlane/sandlane/kubeclient/backoff"
)

// listTimeout bounds one call to the API server for leases.
const listTimeout = 5 * time.Second

// rememberOver is how long the UID of an ended lease or pod is kept: longer than
// any list or watch may lag behind.
const rememberOver = time.Hour

// Start watches leases and pods, lists the leases every RefreshEvery, and deletes those
// whose gateway is over or left once Client.Poll has had that remembered, until the context
// ends; then it returns nil. One Directory may do so at a time. List works without it, but without
// the watch a clean stop looks like a lease that vanished.
func (d *Directory) Start(ctx context.Context) error {
	d.mu.Lock()
	d.running, d.podsListed = true, false
	d.mu.Unlock()
	var watching sync.WaitGroup
	watching.Go(func() { d.reflector().RunWithContext(ctx) })
	if d.o.Pods != nil {
		watching.Go(func() { d.podReflector().RunWithContext(ctx) })
	}
	defer watching.Wait()
	for {
		d.refresh(ctx)
		if !backoff.Sleep(ctx, d.o.RefreshEvery) {
			return nil
		}
	}
}

// reflector feeds the watch into the Directory.
func (d *Directory) reflector() *cache.Reflector {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return d.o.Leases.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return d.o.Leases.Watch(ctx, o)
		},
	}
	return cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, d.o.Leases),
		&coordinationv1.Lease{}, leaseStore{d}, cache.ReflectorOptions{Name: "gateway leases"})
}

// leaseStore lets a Reflector feed the Directory.
type leaseStore struct{ d *Directory }

func (s leaseStore) Add(obj any) error { return s.Update(obj) }
func (s leaseStore) Update(obj any) error {
	if l := obj.(*coordinationv1.Lease); s.d.o.Kind.has(l) {
		s.d.upsert(l)
	}
	return nil
}
func (s leaseStore) Delete(obj any) error { s.d.remove(obj.(*coordinationv1.Lease)); return nil }
func (s leaseStore) Resync() error        { return nil }
func (s leaseStore) Replace(objs []any, rv string) error {
	leases := make([]*coordinationv1.Lease, 0, len(objs))
	for _, o := range objs {
		if l := o.(*coordinationv1.Lease); s.d.o.Kind.has(l) {
			leases = append(leases, l)
		}
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.d.replace(leases, rv)
	return nil
}

// refresh lists the leases and deletes those of gateways that are over.
func (d *Directory) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if _, err := d.List(ctx); err != nil {
		if ctx.Err() == nil {
			d.o.Log.Warn("gateways are unknown", "error", err)
		}
		return
	}
	d.lookForPods(ctx)
	for _, l := range d.ended() {
		err := d.o.Leases.Delete(ctx, l.Name, onlyThis(l))
		switch {
		case err == nil, apierrors.IsNotFound(err):
			d.deleted(l)
		case apierrors.IsConflict(err): // written since: the next list shows it
		default:
			d.o.Log.Warn("deleting the lease of a gateway that is over failed", "lease", l.Name, "error", err)
		}
	}
}

// ended returns the leases to delete, and forgets UIDs of long ago. A lease stays until the
// loss of what its gateway knew is remembered elsewhere; an egress process knows nothing that
// is of use after it.
func (d *Directory) ended() []*coordinationv1.Lease {
	d.mu.Lock()
	defer d.mu.Unlock()
	for uid, f := range d.endedLeases {
		if time.Since(f.at) > rememberOver {
			delete(d.endedLeases, uid)
		}
	}
	forget(d.endedPods)
	var out []*coordinationv1.Lease
	for _, e := range d.entries {
		switch {
		case e.Gone || !e.ended && e.Holder.Mark != MarkLeft:
			e.over = time.Time{}
			continue
		case e.over.IsZero():
			e.over = time.Now()
		}
		if d.o.Kind == Egress || e.over.Before(d.remembered) {
			out = append(out, e.lease)
		}
	}
	return out
}

// deleted notes that a lease that was over is deleted.
func (d *Directory) deleted(l *coordinationv1.Lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.finish(l.UID)
	if e, ok := d.entries[l.Name]; ok && e.lease.UID == l.UID {
		delete(d.entries, l.Name)
	}
}
