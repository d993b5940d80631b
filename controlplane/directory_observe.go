package controlplane

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// older reports whether resourceVersion a is older than b. Nothing is older
// than an empty one.
func older(a, b string) bool {
	if b == "" {
		return false
	}
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && c < 0
}

// replace takes in a list of all leases at a resourceVersion. mu is held.
func (d *Directory) replace(leases []*coordinationv1.Lease, rv string) {
	if older(rv, d.rv) {
		return
	}
	d.rv = rv
	listed := make(map[string]types.UID, len(leases))
	for _, l := range leases {
		listed[l.Name] = l.UID
		d.see(l)
	}
	for name, e := range d.entries {
		_, ok := listed[name]
		if newer := older(rv, e.lease.ResourceVersion); ok || newer || e.Gone {
			continue
		}
		d.vanish(name, e, rv)
	}
}

// upsert takes in one lease that was added or changed.
func (d *Directory) upsert(l *coordinationv1.Lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if older(l.ResourceVersion, d.rv) || l.ResourceVersion == d.rv {
		return
	}
	d.see(l)
}

// remove takes in the deletion of a lease, with its last state.
func (d *Directory) remove(l *coordinationv1.Lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.entries[l.Name]
	h, err := ParseHolder(holderOf(l))
	if clean := err == nil && h.Mark == MarkLeft; clean {
		d.finish(l.UID)
		switch {
		case !ok:
		case e.lease.UID == l.UID:
			d.leave(l.Name, e)
		case e.Holder == h.with(MarkRevoked) && !e.ended:
			// A list lacked it before the watch told why, and it was written back.
			d.lose(e)
			e.expired, e.ended = true, true
		}
		return
	}
	if ok && e.lease.UID == l.UID && !e.Gone {
		d.vanish(l.Name, e, l.ResourceVersion)
	}
}

// see takes in a lease as it stood when it was read. mu is held.
func (d *Directory) see(l *coordinationv1.Lease) {
	if _, ended := d.endedLeases[l.UID]; ended {
		return
	}
	e, known := d.entries[l.Name]
	if known && older(l.ResourceVersion, e.lease.ResourceVersion) {
		return
	}
	h, err := ParseHolder(holderOf(l))
	if err != nil {
		// No process of ours writes such a holder. It counts as no renewal, and as one
		// that cannot answer until the gateway writes its own again.
		h = Holder{Mark: MarkRevoked, Instance: holderOf(l)}
		if known {
			h = e.Holder.with(MarkRevoked)
		}
	}
	if !known {
		e = &entry{renewed: time.Now()}
		d.entries[l.Name] = e
	} else {
		if h.Mark != MarkLeft && h.Instance != e.Holder.Instance {
			d.lose(e) // another process: what the old one knew is gone
			e.handed = false
		}
		if h.succeeds(e.Holder) || !e.lease.Spec.RenewTime.Equal(l.Spec.RenewTime) {
			e.renewed, e.expired, e.ended = time.Now(), false, false
		}
	}
	if h.Mark == MarkLeft && (!known || e.Holder.Mark != MarkLeft) {
		d.lose(e) // a clean stop, and its last uses may not have been asked for
	}
	e.lease, e.sealed = l, h.Mark == MarkRevoked
	e.Gateway = Gateway{Name: l.Name, Address: e.Address, Holder: h, Duration: e.Duration}
	// What was taken off is as before: its gateway joins anew for that.
	_, address := d.o.Kind.keys()
	if a := l.Annotations[address]; a != "" {
		e.Address = a
	}
	if uid := l.Annotations[v1alpha1.AnnotationGatewayPod]; uid != "" {
		e.pod = types.UID(uid)
	}
	if s := l.Spec.LeaseDurationSeconds; s != nil {
		e.Duration = time.Duration(*s) * time.Second
	}
}

// vanish is called when a lease is not there any more, at a resourceVersion. mu is held.
func (d *Directory) vanish(name string, e *entry, rv string) {
	switch {
	case e.Holder.Mark == MarkLeft:
		d.leave(name, e)
	case e.ended:
		d.finish(e.lease.UID)
		delete(d.entries, name)
	default:
		d.o.Log.Warn("gateway lease vanished", "lease", name, "holder", e.Holder.String())
		e.Gone, e.lease = true, e.lease.DeepCopy()
		e.lease.ResourceVersion = rv // one that is shown and older was brought back by a backup
		if !e.expired {
			// A renewal may have come between the last look and the deletion. One that has
			// expired could not renew, and owes no fence for being deleted.
			e.renewed, e.sealed = time.Now(), false
		}
	}
}

// leave ends the entry of a gateway that stopped cleanly. mu is held.
func (d *Directory) leave(name string, e *entry) {
	if e.Holder.Mark != MarkLeft {
		d.lose(e)
	}
	d.finish(e.lease.UID)
	delete(d.entries, name)
}

// finish makes older lists that still show a lease harmless. mu is held.
func (d *Directory) finish(uid types.UID) {
	d.steps++
	d.endedLeases[uid] = leaseEnd{time.Now(), d.steps}
}
