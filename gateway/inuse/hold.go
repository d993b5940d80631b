package inuse

import (
	"slices"
	"time"
)

// Holds:
//
// While the controller prepares an idle release, the claim's requests are held:
// Hold, then a look at what is in use (Refresh, InUse), and only then the answer
// to the controller. A handler touches the use, then looks at Held. So a
// request is either seen by the look, or waits. A claim has one hold, with the
// tokens of all its releases under way. Lift takes a token out; the hold ends with
// its last token or with the claim (ClaimEnded).
//
// A request that waits for a live read has no claim whose use to note yet, and is not
// authorised. It is noted by its ID (Resolving) until it is answered: the look sees
// it, so a release that is prepared meanwhile is called off; reports do not.

// hold is the idle releases of one claim that are under way, as far as this
// gateway knows: usually none or one. A claim is held while there is any, so
// that a late event of one release does not undo another's hold.
type hold struct {
	tokens []string
	latest time.Time // when the latest token was added
	lifted chan struct{}
}

// Held is a claim's hold as it stands.
type Held struct {
	// Tokens are those of the releases under way.
	Tokens []string
	// Age is how long ago the latest release under way was noted.
	Age time.Duration
	// Lifted is closed when the claim is not held any more, or has ended.
	Lifted <-chan struct{}
}

// Hold makes the claim's requests wait for the end of the release with this
// token. A claim that has ended needs none.
func (r *Registry) Hold(id, claim, token string) {
	use := r.ClaimUse(id, claim)
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.find(id, claim)
	if e == nil {
		return
	}
	if e.hold == nil {
		e.hold = &hold{lifted: make(chan struct{})}
	}
	if !slices.Contains(e.hold.tokens, token) {
		e.hold.tokens = append(e.hold.tokens, token)
		e.hold.latest = r.now()
	}
	use.SetHolding(true)
}

// Lift says that the releases with these tokens are called off. Call it when
// none of them can be carried out any more.
func (r *Registry) Lift(id, claim string, tokens ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.find(id, claim)
	if e == nil || e.hold == nil {
		return
	}
	e.hold.tokens = slices.DeleteFunc(e.hold.tokens, func(t string) bool { return slices.Contains(tokens, t) })
	if len(e.hold.tokens) == 0 {
		e.use.SetHolding(false)
		e.lift()
	}
}

// HeldNow returns the claim's hold; false if it is not held, or has ended.
func (r *Registry) HeldNow(id, claim string) (Held, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.find(id, claim)
	if e == nil || e.hold == nil {
		return Held{}, false
	}
	return Held{Tokens: slices.Clone(e.hold.tokens), Age: r.now().Sub(e.hold.latest), Lifted: e.hold.lifted}, true
}

// InUse reports whether a request of the sandbox is parked or waits for a live read,
// or the claim was used less than within ago. Envoy's counts are in it as of the
// last tick.
func (r *Registry) InUse(id, claim string, within time.Duration) bool {
	r.catchUp()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.parked[id] > 0 || r.resolving[id] > 0 {
		return true
	}
	e := r.find(id, claim)
	if e == nil {
		return false
	}
	last := e.use.Load()
	return last != 0 && time.Duration(r.now().UnixNano()-last) < within
}

// lift ends the hold. Under mu.
func (e *entry) lift() {
	close(e.hold.lifted)
	e.hold = nil
}

// find returns a claim's entry; nil if it has none. Under mu.
func (r *Registry) find(id, claim string) *entry {
	for e := r.entries[id]; e != nil; e = e.next {
		if e.claim == claim {
			return e
		}
	}
	return nil
}
