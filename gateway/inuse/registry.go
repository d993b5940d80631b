package inuse

import (
	"crypto/rand"
	"sync"
	"time"

	"github.com/sandlane/sandlane/routecache"
)

// The states of an entry:
//
// An entry (sandbox ID, claim ID) comes with Stamp, is untouched until its first
// touch, and goes with Over, for good: a Stamp for a claim that is over already
// is a loose one that is never reported. What may come long after the claim's end asks
// for an entry that is there already (Existing). The Registry's mutex guards the entries and
// what is parked; stamps are touched without it.

// maxOver is how many claims that are over are remembered, so that a resolve
// that comes late does not bring back an entry that nothing would take out.
const maxOver = 4096

// Registry holds the stamps of this gateway. Safe for concurrent use.
type Registry struct {
	now      func() time.Time
	instance string
	// before is called before stamps are read; nil for nothing.
	before func()

	// mu guards all that follows.
	mu sync.Mutex
	// entries has the claims of an ID, usually one, as a list by next.
	entries map[string]*entry
	// all has every entry at its place, for a report to walk through.
	all    []*entry
	parked map[string]int // requests parked, by ID
	// resolving are the requests that wait for a live read, by ID: they may be for
	// a sandbox, and are not authorised.
	resolving map[string]int
	// over holds the claims that are over; overOrder is a ring of them.
	over      map[claimKey]struct{}
	overOrder []claimKey
	overNext  int
	// cursor is that of the last report. It only grows.
	cursor uint64
	// known is until when Envoy's counts are fresh; zero = they are not.
	known time.Time
}

type claimKey struct{ id, claim string }

type entry struct {
	id, claim string
	next      *entry
	place     int // in all
	stamp     routecache.Stamp
	// reported is the stamp that the last report found, changed the cursor of the
	// report that found it new. Comparing stamps, not times, lets no touch slip by
	// that read the clock before a report and wrote after it.
	reported int64
	changed  uint64
	hold     *hold // nil: the claim's requests are not held
}

// Monotonic returns a clock that begins at the present time and then follows the
// machine's monotonic one: steps of the wall clock do not change ages. Whoever
// touches a registry's stamps must use the registry's clock.
func Monotonic() func() time.Time {
	start := time.Now()
	return func() time.Time { return start.Add(time.Since(start)) }
}

// NewRegistry returns an empty registry with an instance ID of its own. Nil now
// means Monotonic().
func NewRegistry(now func() time.Time) *Registry {
	if now == nil {
		now = Monotonic()
	}
	return &Registry{
		now: now, instance: rand.Text(),
		entries: map[string]*entry{}, parked: map[string]int{}, resolving: map[string]int{}, over: map[claimKey]struct{}{},
	}
}

// Before has f called whenever stamps are about to be read, so that it can touch those
// whose use is noted elsewhere first. Call it before the registry is used.
func (r *Registry) Before(f func()) { r.before = f }

// catchUp has what is noted elsewhere noted here.
func (r *Registry) catchUp() {
	if r.before != nil {
		r.before()
	}
}

// Now returns the registry's time, in the unit of stamps.
func (r *Registry) Now() int64 { return r.now().UnixNano() }

// Stamp returns the stamp of a claim, a new and untouched one at first.
func (r *Registry) Stamp(id, claim string) *routecache.Stamp {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.find(id, claim); e != nil {
		return &e.stamp
	}
	e := &entry{id: id, claim: claim}
	if _, over := r.over[claimKey{id, claim}]; !over {
		e.next, e.place = r.entries[id], len(r.all)
		r.entries[id] = e
		r.all = append(r.all, e)
	}
	return &e.stamp
}

// Existing returns the stamp of a claim that has an entry; nil if it has none, which
// is so once it is over.
func (r *Registry) Existing(id, claim string) *routecache.Stamp {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.find(id, claim); e != nil {
		return &e.stamp
	}
	return nil
}

// Park says that a request for the sandbox waits in this gateway; until unpark
// is called the sandbox is in use. Further calls of unpark do nothing.
func (r *Registry) Park(id string) (unpark func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parked[id]++
	return sync.OnceFunc(func() { r.unpark(id) })
}

// unpark leaves the sandbox's claims stamped: their idle time begins now.
func (r *Registry) unpark(id string) {
	now := r.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.parked[id]--; r.parked[id] == 0 {
		delete(r.parked, id)
	}
	for e := r.entries[id]; e != nil; e = e.next {
		e.stamp.Touch(now)
	}
}

// Resolving says that a request for the sandbox waits for a live read. Until resolved
// is called InUse says yes; the request is not use by itself, so no report shows it
// and nothing is stamped. Further calls of resolved do nothing.
func (r *Registry) Resolving(id string) (resolved func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resolving[id]++
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.resolving[id]--; r.resolving[id] == 0 {
			delete(r.resolving, id)
		}
	})
}

// Over forgets a claim that is over.
func (r *Registry) Over(id, claim string) {
	key := claimKey{id, claim}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(key)
	if _, ok := r.over[key]; ok {
		return
	}
	r.over[key] = struct{}{}
	if len(r.overOrder) < maxOver {
		r.overOrder = append(r.overOrder, key)
		return
	}
	delete(r.over, r.overOrder[r.overNext])
	r.overOrder[r.overNext] = key
	r.overNext = (r.overNext + 1) % maxOver
}

// remove takes out a claim's entry, if there is one. Under mu.
func (r *Registry) remove(key claimKey) {
	var before *entry
	e := r.entries[key.id]
	for e != nil && e.claim != key.claim {
		before, e = e, e.next
	}
	switch {
	case e == nil:
		return
	case before != nil:
		before.next = e.next
	case e.next != nil:
		r.entries[key.id] = e.next
	default:
		delete(r.entries, key.id)
	}
	if e.hold != nil {
		e.lift() // the stamp stays held: no request is to be answered for a claim that is over
	}
	last := r.all[len(r.all)-1]
	last.place = e.place
	r.all[e.place] = last
	r.all[len(r.all)-1] = nil
	r.all = r.all[:len(r.all)-1]
}
