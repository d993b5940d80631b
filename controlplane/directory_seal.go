package controlplane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// sealTimeout bounds the writes that a list may have to wait for.
const sealTimeout = time.Second

// errRestored says that a list may come from before the API server went back.
var errRestored = errors.New("listing gateway leases: the API server has gone back to an older state meanwhile")

// timeOver reports whether no renewal of a lease was seen for its time and grace before
// a moment. mu is held.
func (d *Directory) timeOver(e *entry, at time.Time) bool {
	return at.Sub(e.renewed) >= e.Duration+d.o.Grace
}

// toSeal returns the gateways whose leases are to count as over, and whose holder could
// still renew (one whose machine stood still with its clocks), and those whose leases are
// to be written back. mu is held; the list has been taken in.
func (d *Directory) toSeal(sent time.Time) []Gateway {
	var out []Gateway
	for _, e := range d.entries {
		unwritten := e.Gone && e.lease.UID != "" && !d.podEnded(e)
		if unwritten || !e.sealed && d.timeOver(e, sent) {
			out = append(out, e.Gateway)
		}
	}
	return out
}

// seal overwrites the holders of leases by name, so that no renewal of theirs succeeds
// any more, and writes the leases back that are missing. A write that fails leaves that
// open: the gateway counts as live or Gone, and the next list tries again. A gateway that
// renewed just before the write joins anew.
func (d *Directory) seal(ctx context.Context, gateways []Gateway) {
	if len(gateways) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	var writing sync.WaitGroup
	for _, g := range gateways {
		writing.Go(func() { d.sealOne(ctx, g) })
	}
	writing.Wait()
}

func (d *Directory) sealOne(ctx context.Context, g Gateway) {
	patch := holderPatch(g.Holder.String(), g.Holder.with(MarkRevoked).String(), time.Time{})
	lost, of := d.missing(g)
	if lost != nil { // if it is there, no list shows it
		patch = writes.Patch{}.Test("/spec/holderIdentity", g.Holder.String()).
			Set("/spec/holderIdentity", lost.Spec.HolderIdentity).
			Set("/metadata/labels", lost.Labels).Set("/metadata/annotations", lost.Annotations).Bytes()
	}
	l, err := d.o.Leases.Patch(ctx, g.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	gone := apierrors.IsNotFound(err)
	if gone && lost != nil {
		d.writeBack(ctx, lost, of)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entries[g.Name]
	switch {
	case e == nil || e.Holder != g.Holder || e.sealed: // left, taken up again, written back, or sealed by another list
	case err != nil && !gone:
		// Invalid: it has another holder by now, which a list shows if it has the label.
		d.o.Log.Warn("a gateway lease that seems to be over or gone may be renewed yet: its holder cannot be overwritten", "lease", g.Name, "holder", g.Holder.String(), "error", err)
	case gone:
		e.sealed = true
	default:
		d.see(l)
	}
}

// missing returns the lease to write back of a gateway whose lease no list shows, and nil
// for others, among them a gateway that is known by its pod alone. Its holder is
// overwritten. The renew time stays: this is no renewal.
func (d *Directory) missing(g Gateway) (*coordinationv1.Lease, *entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entries[g.Name]
	if e == nil || !e.Gone || e.Holder != g.Holder || e.lease.UID == "" {
		return nil, nil
	}
	label, address := d.o.Kind.keys()
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name:   g.Name,
			Labels: map[string]string{label: gatewayLabel(g.Name)}, Annotations: map[string]string{address: e.Address},
		},
		Spec: *e.lease.Spec.DeepCopy(),
	}
	if e.pod != "" {
		l.Annotations[v1alpha1.AnnotationGatewayPod] = string(e.pod)
	}
	holder := g.Holder.with(MarkRevoked).String()
	l.Spec.HolderIdentity = &holder
	return l, e
}

// writeBack makes the lease of an entry anew that is missing, so that the next controller
// knows of its gateway. After a failure the next list tries again. If the entry has gone
// meanwhile, since the watch has shown a clean stop, the lease is to be deleted at once.
func (d *Directory) writeBack(ctx context.Context, lost *coordinationv1.Lease, of *entry) {
	l, err := d.o.Leases.Create(ctx, lost, metav1.CreateOptions{})
	switch {
	case err == nil:
		d.o.Log.Warn("wrote the lease of a gateway back that was missing", "lease", lost.Name, "holder", holderOf(lost))
		d.upsert(l)
		d.mu.Lock()
		defer d.mu.Unlock()
		if e := d.entries[l.Name]; e != nil && e != of && e.lease.UID == l.UID && e.lease.ResourceVersion == l.ResourceVersion {
			e.expired, e.ended = true, true
		}
	case apierrors.IsAlreadyExists(err): // its gateway was quicker: the next list shows it
	default:
		d.o.Log.Warn("a gateway lease is missing and cannot be written back: a controller that starts now knows of its gateway by its pod alone", "lease", lost.Name, "error", err)
	}
}

// WriteDown makes sure that the API server shows the lease of every gateway that this
// Directory knows of, so that the process may end. It returns nil at once unless Start
// runs or ran.
func (d *Directory) WriteDown(ctx context.Context) error {
	d.mu.Lock()
	running := d.running
	d.mu.Unlock()
	if !running {
		return nil
	}
	if _, err := d.List(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, e := range d.entries {
		if e.Gone && e.lease.UID != "" {
			return fmt.Errorf("the lease of gateway %s is missing and not yet written back", name)
		}
	}
	return nil
}

// restoreCount returns how often the API server was seen to go back.
func (d *Directory) restoreCount() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.restores
}

// versions returns the resourceVersion of each lease as last seen. mu is held.
func (d *Directory) versions() map[string]string {
	out := make(map[string]string, len(d.entries))
	for name, e := range d.entries {
		out[name] = e.lease.ResourceVersion
	}
	return out
}

// newest returns the newest resourceVersion that was seen. mu is held.
func (d *Directory) newest() string {
	out := d.rv
	for _, e := range d.entries {
		if out == "" || older(out, e.lease.ResourceVersion) {
			out = e.lease.ResourceVersion
		}
	}
	return out
}

// restored takes in that the API server has gone back to an older state, as when etcd
// is restored from a backup. Versions of before compare with nothing any more, a lease
// that was over may be there again, and so may a holder that was overwritten. All that
// is known counts its time anew. mu is held.
func (d *Directory) restored(from, to string) {
	d.o.Log.Error("the API server has gone back to an older state: gateway leases are read anew", "from", from, "to", to)
	d.restores++
	d.rv = ""
	clear(d.endedLeases)
	for _, e := range d.entries {
		e.lease = e.lease.DeepCopy()
		e.lease.ResourceVersion = ""
		e.renewed, e.sealed, e.expired, e.ended = time.Now(), false, false, false
	}
}
