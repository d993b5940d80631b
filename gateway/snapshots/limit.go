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
// taken until Keep has made the sandbox's object, which counts from then on, or until end is
// called, which must follow.
func (x *Snapshots) MayKeep(ctx context.Context, s *v1alpha1.Sandbox) (end func(), err error) {
	end, err = x.reserve(ctx, e2b.KeyOwner{Team: s.Spec.Team, Namespace: s.Spec.Namespace, KeyID: s.Annotations[v1alpha1.AnnotationOwner]})
	if err != nil {
		return nil, err
	}
	return x.making.hold(claimOf(s), end), nil
}

// owner is whose snapshots are counted together: a namespace's, or those of one API key
// in it.
type owner struct{ namespace, key string }

// making counts the snapshots of this gateway whose objects are about to be made, so that
// two at once do not both take the last place. What other gateways make at the same moment
// is not counted yet: together they may make a few more than the limit.
type making struct {
	mu   sync.Mutex // guards the rest
	now  map[owner]int
	held map[string]*hold // by claim
}

// hold counts what the pause of a claim's sandbox is about to keep, until end is called.
type hold struct{ end func() }

// hold notes the claim whose pause end ends the count of, and returns what ends both.
func (m *making) hold(claim string, end func()) func() {
	h := &hold{end}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held == nil {
		m.held = map[string]*hold{}
	}
	m.held[claim] = h
	return func() {
		m.mu.Lock()
		if m.held[claim] == h {
			delete(m.held, claim)
		}
		m.mu.Unlock()
		end()
	}
}

// made ends the count of what the claim's pause is about to keep, if there is one: its
// object is there.
func (m *making) made(claim string) {
	m.mu.Lock()
	h := m.held[claim]
	delete(m.held, claim)
	m.mu.Unlock()
	if h != nil {
		h.end()
	}
}

// begin counts one more of each, until end is called, and returns how many there are with
// it.
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
func (x *Snapshots) reserve(ctx context.Context, who e2b.KeyOwner) (end func(), err error) {
	limits := map[owner]int{}
	if n := x.o.MaxInNamespace; n > 0 {
		limits[owner{namespace: who.Namespace}] = n
	}
	if n := x.o.MaxByKey; n > 0 && who.KeyID != "" {
		limits[owner{who.Namespace, who.KeyID}] = n
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
	if err := x.o.API.List(ctx, &all, client.InNamespace(who.Namespace)); err != nil {
		return nil, fmt.Errorf("count snapshots: %w", err)
	}
	for i := range all.Items {
		cp := &all.Items[i]
		if cp.DeletionTimestamp != nil || cp.Status.Phase == v1alpha1.CheckpointFailed {
			continue
		}
		count[owner{namespace: who.Namespace}]++
		if key := cp.Annotations[v1alpha1.AnnotationOwner]; key != "" { // without a key it would count for the namespace again
			count[owner{who.Namespace, key}]++
		}
	}
	for o, most := range limits {
		if count[o] > most {
			return nil, e2b.ErrSnapshotLimit
		}
	}
	return made, nil
}
