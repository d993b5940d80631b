package inuse

import (
	"crypto/rand"
	"sync"
	"time"

	"github.com/sandlane/sandlane/routecache"
)

// The states of an entry:
//
// An entry (sandbox ID, claim ID) comes with ClaimUse, is untouched until its first
// touch, and goes with ClaimEnded, for good but for Rewind: a ClaimUse for a claim that has
// ended is detached and never reported. Callers that may come long after the claim's end ask for
// an entry that is there already (Existing). The Registry's mutex guards the entries and
// what is parked; uses are touched without it.

// maxEnded is how many ended claims are remembered, so that a resolve that comes late
// does not bring back an entry that nothing would remove.
const maxEnded = 4096

// Registry holds the uses of this gateway. It is extproc.Activity and
// controlplane.ActivitySource. Safe for concurrent use.
type Registry struct {
	now      func() time.Time
	instance string
	// before is called before uses are read; nil for nothing.
	before func()
	index  ClaimIndex

	// mu guards all that follows.
	mu sync.Mutex
	// entries has the claims of an ID, usually one, as a list by next.
	entries map[string]*entry
	// all has every entry at its index, for a report to walk through.
	all    []*entry
	parked map[string]int // requests parked, by ID
	// resolving are the requests that wait for a live read, by ID: they may be for
	// a sandbox, and are not authorised.
	resolving map[string]int
	// ended holds the claims that have ended; endedOrder is a ring of them.
	ended      map[claimKey]struct{}
	endedOrder []claimKey
	endedNext  int
	// cursor is that of the last report. It only grows.
	cursor uint64
	// known is until when Envoy's counts count as current; zero = they do not.
	known time.Time
}

type claimKey struct{ id, claim string }

type entry struct {
	id, claim string
	next      *entry
	index     int // in all
	use       routecache.ClaimUse
	// reported is the use's value in the last report, changed the cursor of the
	// report that first had it. Values are compared, not times: so a touch that read
	// the clock before a report and wrote after it is reported too.
	reported int64
	changed  uint64
	hold     *hold // nil: the claim's requests are not held
	seen     sighting
}

// sighting is since when a controller has seen a claim run, and the Sandbox's pauseOrder for
// which that held; zero if none has told.
type sighting struct {
	at    int64
	order int64
}

// Monotonic returns a clock that begins at the present time and then follows the
// machine's monotonic one: steps of the wall clock do not change ages. Code that
// touches a registry's uses must use the registry's clock.
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
		now: now, instance: rand.Text(), index: noIndex{},
		entries: map[string]*entry{}, parked: map[string]int{}, resolving: map[string]int{}, ended: map[claimKey]struct{}{},
	}
}

// Before sets the function that is called whenever uses are about to be read: it touches
// those whose use is noted elsewhere (in Envoy's table). Set it before the registry is
// used.
func (r *Registry) Before(f func()) { r.before = f }

// SetIndex sets what says which claim is a sandbox's; without it none is known. Set it before
// the registry is used.
func (r *Registry) SetIndex(x ClaimIndex) { r.index = x }

// catchUp brings in the use that is noted elsewhere.
func (r *Registry) catchUp() {
	if r.before != nil {
		r.before()
	}
}

// Now returns the registry's time, in the unit of uses.
func (r *Registry) Now() int64 { return r.now().UnixNano() }

// ClaimUse returns the use of a claim, a new and untouched one at first.
func (r *Registry) ClaimUse(id, claim string) *routecache.ClaimUse {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.find(id, claim); e != nil {
		return &e.use
	}
	e := &entry{id: id, claim: claim}
	if _, ended := r.ended[claimKey{id, claim}]; !ended {
		e.next, e.index = r.entries[id], len(r.all)
		r.entries[id] = e
		r.all = append(r.all, e)
	}
	return &e.use
}

// Existing returns the use of a claim that has an entry; nil if it has none, as after
// its end.
func (r *Registry) Existing(id, claim string) *routecache.ClaimUse {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.find(id, claim); e != nil {
		return &e.use
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

// unpark notes the use of the sandbox's claims: their idle time begins now.
func (r *Registry) unpark(id string) {
	now := r.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.parked[id]--; r.parked[id] == 0 {
		delete(r.parked, id)
	}
	for e := r.entries[id]; e != nil; e = e.next {
		e.use.Touch(now)
	}
}

// Resolving says that a request for the sandbox waits for a live read. Until resolved
// is called InUse says yes; the request is not use by itself, so no report shows it
// and no use is noted. Further calls of resolved do nothing.
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

// ClaimEnded forgets a claim that has ended.
func (r *Registry) ClaimEnded(id, claim string) {
	key := claimKey{id, claim}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(key)
	if _, ok := r.ended[key]; ok {
		return
	}
	r.ended[key] = struct{}{}
	if len(r.endedOrder) < maxEnded {
		r.endedOrder = append(r.endedOrder, key)
		return
	}
	delete(r.ended, r.endedOrder[r.endedNext])
	r.endedOrder[r.endedNext] = key
	r.endedNext = (r.endedNext + 1) % maxEnded
}

// Rewind forgets which claims have ended: the API server has gone back to an older state, in
// which they may run.
func (r *Registry) Rewind() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.ended)
	r.endedOrder, r.endedNext = nil, 0
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
		e.lift() // the use stays held: no request is to be answered for a claim that has ended
	}
	last := r.all[len(r.all)-1]
	last.index = e.index
	r.all[e.index] = last
	r.all[len(r.all)-1] = nil
	r.all = r.all[:len(r.all)-1]
}
