package controlplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sort"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/kubeclient/writes"
)

// Defaults of DirectoryOptions.
const (
	DefaultLeaseGrace   = 30 * time.Second
	DefaultRefreshEvery = 10 * time.Second
)

// DirectoryOptions configure a Directory. Leases is required.
type DirectoryOptions struct {
	// Kind is that of the leases that count; the zero value is Gateways.
	Kind Kind
	// Leases are the leases of the system namespace.
	Leases DirectoryLeases
	// Pods are the pods of the system namespace. A gateway whose pod has ended is over
	// at once; one whose lease is over is asked what is in use while its pod is there.
	// Nil: a gateway is over once the time of its lease, and Grace, have passed.
	Pods GatewayPods
	// Grace is added to a lease's duration; it covers clocks that run at
	// different speeds. 0 means DefaultLeaseGrace.
	Grace time.Duration
	// RefreshEvery is the time between two live lists made by Start. 0 means
	// DefaultRefreshEvery.
	RefreshEvery time.Duration
	// Metrics may be nil.
	Metrics *ControllerMetrics
	// Log may be nil.
	Log *slog.Logger
}

// Gateway is one gateway that must be asked.
type Gateway struct {
	// Name is the name of its lease.
	Name string
	// Address is its gRPC target.
	Address string
	Holder  Holder
	// Duration is that of its lease.
	Duration time.Duration
	// Gone is true when there is no lease, without a clean stop.
	Gone bool
	// Expired is true when the lease is over and the pod is not: it cannot route
	// any more and owes no fence, but its Envoy may have streams open.
	Expired bool
	// First is true when no process held its lease before this one.
	First bool
}

// Directory is the controller's knowledge of gateways. It learns from live
// lists (List, and one every RefreshEvery while Start runs) and from a watch.
// Only a live list can end a lease: its request must have been sent after the
// lease's time and grace since a renewal was last seen, and show no newer one;
// or the kubelet has said that the gateway's pod has ended, whatever writes of it
// are still on their way.
// A gateway whose lease has ended is still asked what is in use while its pod is
// there.
// A list or event older than what is known is ignored. A new Directory counts
// each lease from when it first saw it, also one that was over for the controller before:
// no mark in the holder may say so, since a backup of etcd brings the mark back of a gateway
// that has joined since (TestLeaseModel). It is safe for concurrent use.
//
// The states of a gateway, as a Directory sees it:
//
//	live     renewed, or within lease and grace: owes fences, is asked about use
//	expired  its lease is over, its pod is not: it routes nothing any more and owes
//	         no fence, but requests that its Envoy took before may still be open. It
//	         is asked about use alone, and its lease is kept, so that the next
//	         controller asks it as well
//	ended    its pod is over, or a list of pods made after the lease's end lacks it;
//	         or it names no pod: asked no more, its lease is deleted
//
//	live ─lease and grace, and sealed─▶ expired ─pod over or gone─▶ ended
//	live ─pod over, or the lease ends and it names no pod─▶ ended
//	expired, ended ─renewal, new holder─▶ live
//
// Sealed: the API server has said that the holder is overwritten or that the lease is
// gone, so that no renewal of that holder succeeds. The Directory overwrites it by name
// when its time is over, and when no list shows it any more; while that write fails the
// gateway is live.
//
// # Leases that are missing
//
// A gateway may hold routes though its lease is missing: someone deleted it, or etcd was
// restored from a backup that lacks it. What this Directory knows and a list lacks, it
// writes back with the holder overwritten, in the same call of List and before that
// returns; so the next controller knows it too. There is no finalizer, since the gateways'
// accounts and rights go first when their namespace is deleted, and nothing would take it
// off. A lease is found by its label or its address, and asked for by no selector.
//
//	present   read: live, as above
//	stripped  its label or address is gone: still listed by the other. Its gateway finds
//	          that at its next renewal and joins anew
//	gone      noted by the watch or a list, not yet written back (Gone): live. A write
//	          that fails is tried again by each list; a namespace that is being
//	          deleted takes none, and its gateways go with it
//	written   the lease is there again, its holder "revoked:…": it counts from the
//	back      moment it was gone, and its gateway joins anew at its next renewal. If a
//	          clean stop is seen late, it is deleted again
//	rewound   a list is older than what was seen before it was sent, as a whole or in one
//	          lease (a restore that raises the revision): all that is known counts its
//	          time anew, and what the list lacks is gone. A lease that had ended and is
//	          shown by a list sent later counts from then
//	unknown   a controller that starts, and a lease that vanished while none ran, or that
//	          one could not write back: the first list after Start looks at the pods. One
//	          that is a gateway's, has run and has no lease is live for the longest
//	          lease and grace, unless it answers, joins or is over (see addPods)
//
// Left over: a gateway without a pod (on one machine), whose lease is deleted while no
// controller runs or is unwritten when it ends.
//
// What an expired gateway may be:
//
//	alive, without the API server    it answers: its Envoy's streams count as before
//	alive, reached by none           unanswered: nothing is released for idleness
//	dead or not to be started,       unanswered, until its process is back or its pod
//	beside an Envoy that lives       is deleted
//	dead with its pod or node        the kubelet says so, or the pod is gone: ended.
//	                                 A pod on a lost node stays until it or the
//	                                 node is deleted; until then unanswered
//	a pod deleted with no grace,     ended at the lease's end: such a delete says
//	which runs on                    that nothing of it runs
type Directory struct {
	o DirectoryOptions

	mu      sync.Mutex
	entries map[string]*entry // by lease name; guarded by mu
	// rv is the resourceVersion that entries show; guarded by mu.
	rv string
	// restores counts how often that went back; guarded by mu.
	restores int
	// endedLeases holds the UIDs of leases that ended: an older list may still show them.
	// Guarded by mu.
	endedLeases map[types.UID]leaseEnd
	// running: Start runs; podsListed: pods without a lease were looked for since it
	// began. Guarded by mu.
	running, podsListed bool
	// steps counts live lists that were begun and ends of leases; guarded by mu.
	steps uint64
	// endedPods holds the UIDs of pods of which nothing runs any more, with when
	// that was seen; guarded by mu.
	endedPods map[types.UID]time.Time
	// lost is when a gateway's memory was last lost; guarded by mu.
	lost time.Time
	// remembered: what was lost or handed over before this moment outlasts this process.
	// Guarded by mu.
	remembered time.Time
}

// leaseEnd is when the end of a lease was noted, by the clock and by Directory.steps.
type leaseEnd struct {
	at   time.Time
	step uint64
}

type entry struct {
	Gateway
	lease   *coordinationv1.Lease // as last seen; never written
	pod     types.UID             // empty if the lease names none
	renewed time.Time             // when this Directory last saw a renewal
	// sealed: no renewal of the holder that is noted can succeed any more, for the API
	// server has said that the lease is gone or that the holder is overwritten.
	sealed bool
	// handed: the process that holds it has told all that it knows about use.
	handed  bool
	expired bool // sealed, and its time is over by a live list, or its pod: it owes no fence
	ended   bool // expired, and its pod is over or gone; asked no more, to be deleted
	// over is since when its lease is to be deleted.
	over time.Time
}

// NewDirectory returns a Directory that knows no gateway yet.
func NewDirectory(o DirectoryOptions) (*Directory, error) {
	if o.Leases == nil {
		return nil, errors.New("gateway directory: no lease client")
	}
	if o.Grace == 0 {
		o.Grace = DefaultLeaseGrace
	}
	if o.RefreshEvery == 0 {
		o.RefreshEvery = DefaultRefreshEvery
	}
	if o.Metrics == nil {
		o.Metrics = NewControllerMetrics(nil)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Directory{o: o, entries: map[string]*entry{}, endedLeases: map[types.UID]leaseEnd{}, endedPods: map[types.UID]time.Time{}}, nil
}

// List lists the leases live and returns the gateways that must be asked,
// sorted by name: those that are Expired about use alone. On an error nothing is
// known, not even that there are none.
func (d *Directory) List(ctx context.Context) ([]Gateway, error) {
	d.mu.Lock()
	sent, before, restores, lookForPods := time.Now(), d.newest(), d.restores, !d.podsListed && d.o.Pods != nil
	known := d.versions()
	d.steps++
	step := d.steps
	d.mu.Unlock()
	// No resourceVersion: a consistent read. No selector: a label is taken off with ease.
	list, err := d.o.Leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing gateway leases: %w", err)
	}
	var leases []*coordinationv1.Lease
	wentBack := older(list.ResourceVersion, before)
	for i := range list.Items {
		if l := &list.Items[i]; d.o.Kind.has(l) {
			leases = append(leases, l)
			wentBack = wentBack || older(l.ResourceVersion, known[l.Name])
		}
	}
	var pods []corev1.Pod
	if lookForPods {
		if pods, err = d.listPods(ctx); err != nil { // after the leases: see addPods
			return nil, fmt.Errorf("listing gateways' pods: %w", err)
		}
	}
	d.mu.Lock()
	switch {
	case d.restores != restores:
		// Sent before the API server was seen to go back: it may be of either time.
		d.mu.Unlock()
		return nil, errRestored
	case wentBack:
		d.restored(before, list.ResourceVersion)
	}
	for _, l := range leases {
		// The list was sent after the lease's end was seen: a backup of etcd brought it back.
		if end, ended := d.endedLeases[l.UID]; ended && end.step < step {
			delete(d.endedLeases, l.UID)
		}
	}
	d.replace(leases, list.ResourceVersion)
	if lookForPods {
		d.addPods(pods)
	}
	unsealed := d.toSeal(sent)
	d.mu.Unlock()
	d.seal(ctx, unsealed)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expire(sent)
	return d.view(), nil
}

// LastLoss is when this Directory last saw that what a gateway knew about use
// is gone: its process was replaced or stopped, or its lease ended, and it had not
// handed over what it knew. The zero
// time means never.
func (d *Directory) LastLoss() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost
}

// noteRemembered notes that a gateway remembers all that was lost or handed over before a
// moment, or that there is none: the next controller need not see it by a lease.
func (d *Directory) noteRemembered(before time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remembered = before
}

// Revoke overwrites the lease's holder, unless it changed since g was listed.
// The renew time stays: this is no renewal.
func (d *Directory) Revoke(ctx context.Context, g Gateway) error {
	patch := holderPatch(g.Holder.String(), g.Holder.with(MarkRevoked).String(), time.Time{})
	l, err := d.o.Leases.Patch(ctx, g.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	switch writes.Judge(err) {
	case writes.Applied:
	case writes.Gone, writes.TestFailed:
		return nil // another holder by now: the next list shows it
	default:
		return fmt.Errorf("overwriting the holder of lease %s: %w", g.Name, err)
	}
	d.o.Metrics.revoked.Inc()
	d.upsert(l)
	return nil
}

// view returns the gateways that must be asked. mu is held.
func (d *Directory) view() []Gateway {
	out := make([]Gateway, 0, len(d.entries))
	for _, e := range d.entries {
		if !e.ended && e.Holder.Mark != MarkLeft {
			g := e.Gateway
			g.Expired = e.expired
			transitions := e.lease.Spec.LeaseTransitions
			g.First = !e.Gone && transitions != nil && *transitions == 0
			out = append(out, g)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	fenced := len(fencing(out))
	d.o.Metrics.gateways.Set(float64(fenced))
	d.o.Metrics.expired.Set(float64(len(out) - fenced))
	return out
}

// fencing returns the gateways that may still route and so owe fences.
func fencing(gateways []Gateway) []Gateway {
	out := make([]Gateway, 0, len(gateways))
	for _, g := range gateways {
		if !g.Expired {
			out = append(out, g)
		}
	}
	return out
}

// expire ends the leases that are sealed and of which no renewal was seen for their
// time and grace before a live list was sent, and those whose gateway's pod has ended.
// Of the first only those end that have no pod to wait for. mu is held; the list has
// been taken in.
func (d *Directory) expire(sent time.Time) {
	for name, e := range d.entries {
		ended := d.podEnded(e)
		if !e.expired && (ended || e.sealed && d.timeOver(e, sent)) {
			d.o.Log.Warn("gateway lease is over", "lease", name, "holder", e.Holder.String(), "podEnded", ended)
			e.expired = true
		}
		if e.expired && !e.ended && (ended || !d.podCounts(e)) {
			d.end(name, e)
		}
	}
}

// end ends a gateway of which nothing is left that could be in use. mu is held.
func (d *Directory) end(name string, e *entry) {
	d.lose(e)
	e.ended = true
	if e.Gone {
		delete(d.entries, name)
	}
}

// handedOver notes that a gateway has told all that it knows about use.
func (d *Directory) handedOver(g Gateway) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.entries[g.Name]; e != nil && e.Holder.Instance == g.Holder.Instance {
		e.handed = true
	}
}

// lose notes that what a gateway knew is gone, unless it has told it. mu is held.
func (d *Directory) lose(e *entry) {
	if e.handed {
		return
	}
	d.lost = time.Now()
	d.o.Metrics.lost.Inc()
}
