package controlplane

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// toSeal returns the gateways whose leases are to count as over or vanished, and whose
// holder could still renew: one whose machine stood still with its clocks, or whose
// lease no list shows any more and exists. mu is held; the list has been taken in.
func (d *Directory) toSeal(sent time.Time) []Gateway {
	var out []Gateway
	for _, e := range d.entries {
		if !e.sealed && (e.Gone || d.timeOver(e, sent)) {
			out = append(out, e.Gateway)
		}
	}
	return out
}

// seal overwrites the holders of leases by name, so that no renewal of theirs succeeds
// any more. A write that fails leaves that open: the gateway counts as live, and the
// next list tries again. A gateway that renewed just before the write joins anew.
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
	l, err := d.o.Leases.Patch(ctx, g.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	gone := apierrors.IsNotFound(err)
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entries[g.Name]
	switch {
	case e == nil || e.Holder != g.Holder || e.sealed: // left, taken up again, or sealed by another list
	case err != nil && !gone:
		// Invalid: it has another holder by now, which a list shows if it has the label.
		d.o.Log.Warn("a gateway lease that seems to be over or gone may be renewed yet: its holder cannot be overwritten", "lease", g.Name, "holder", g.Holder.String(), "error", err)
	case gone || e.Gone: // deleted, or no list shows it
		e.sealed = true
	default:
		d.see(l)
	}
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
