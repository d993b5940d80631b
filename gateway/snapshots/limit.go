package snapshots

import (
	"context"
	"fmt"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/e2b"
)

// MayKeep takes a place for the files of a sandbox that is to hibernate, which count as a
// snapshot of its namespace and API key; e2b.ErrSnapshotLimit if there is none. The place is
// taken until Keep has created the Checkpoint, which counts from then on, or until end is
// called. The caller must call end.
func (x *Snapshots) MayKeep(ctx context.Context, s *v1alpha1.Sandbox) (end func(), err error) {
	end, err = x.reserve(ctx, e2b.KeyOwner{Team: s.Spec.Team, Namespace: s.Spec.Namespace, KeyID: s.Annotations[v1alpha1.AnnotationOwner]})
	if err != nil {
		return nil, err
	}
	return x.making.placeFor(claimOf(s), end), nil
}

// owner names snapshots that are counted together: all of a namespace, or those of one
// API key in it.
type owner struct{ namespace, key string }

// making counts the snapshots of this gateway whose objects are about to be created, so
// that two at once do not both take the last place. Snapshots that other gateways create
// at the same moment are not counted yet: together they may exceed the limit by a few.
type making struct {
	mu     sync.Mutex // guards the rest
	now    map[owner]int
	places map[string]*place // of pauses, by claim
}

// place is one that the pause of a claim's sandbox has taken, until end is called.
type place struct{ end func() }

// placeFor notes the place of a claim's pause, which end gives back, and returns a function
// that does both: it forgets the place, and gives it back.
func (m *making) placeFor(claim string, end func()) func() {
	taken := &place{end}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.places == nil {
		m.places = map[string]*place{}
	}
	m.places[claim] = taken
	return func() {
		m.mu.Lock()
		if m.places[claim] == taken {
			delete(m.places, claim)
		}
		m.mu.Unlock()
		end()
	}
}

// made gives the place of the claim's pause back, if it has one: its Checkpoint is created,
// and counts by itself.
func (m *making) made(claim string) {
	m.mu.Lock()
	taken := m.places[claim]
	delete(m.places, claim)
	m.mu.Unlock()
	if taken != nil {
		taken.end()
	}
}

// begin adds one to the count of each owner, until end is called, and returns the counts.
func (m *making) begin(of ...owner) (now map[owner]int, end func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now == nil {
		m.now = map[owner]int{}
	}
	now = map[owner]int{}
	for _, o := range of {
		m.now[o]++
		now[o] = m.now[o]
	}
	return now, sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, o := range of {
			if m.now[o]--; m.now[o] == 0 {
				delete(m.now, o)
			}
		}
	})
}

// reserve takes a place for one more snapshot of a caller, or returns
// e2b.ErrSnapshotLimit. Call end once the Checkpoint is created, or will not be.
func (x *Snapshots) reserve(ctx context.Context, caller e2b.KeyOwner) (end func(), err error) {
	limits := map[owner]int{}
	if n := x.o.MaxInNamespace; n > 0 {
		limits[owner{namespace: caller.Namespace}] = n
	}
	if n := x.o.MaxByKey; n > 0 && caller.KeyID != "" {
		limits[owner{caller.Namespace, caller.KeyID}] = n
	}
	if len(limits) == 0 {
		return func() {}, nil
	}
	of := make([]owner, 0, len(limits))
	for o := range limits {
		of = append(of, o)
	}
	count, made := x.making.begin(of...) // before the list: a Checkpoint that is created meanwhile may count twice, never not at all
	defer func() {
		if err != nil {
			made()
		}
	}()
	var all v1alpha1.CheckpointList
	if err := x.o.API.List(ctx, &all, client.InNamespace(caller.Namespace)); err != nil {
		return nil, fmt.Errorf("count snapshots: %w", err)
	}
	for i := range all.Items {
		cp := &all.Items[i]
		if cp.DeletionTimestamp != nil || cp.Status.Phase == v1alpha1.CheckpointFailed {
			continue
		}
		count[owner{namespace: caller.Namespace}]++
		if key := cp.Annotations[v1alpha1.AnnotationOwner]; key != "" { // without a key it would count for the namespace again
			count[owner{caller.Namespace, key}]++
		}
	}
	for o, most := range limits {
		if count[o] > most {
			return nil, e2b.ErrSnapshotLimit
		}
	}
	return made, nil
}
