package files

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/routing"
)

// ReserveForPause reserves room for the files of a sandbox that is to hibernate, which
// count as a snapshot of its namespace and API key; restapi.ErrSnapshotLimit if there is none.
// The reservation ends when Keep has created the Checkpoint, which counts from then on, or
// when giveBack is called. The caller must call giveBack.
func (x *Snapshots) ReserveForPause(ctx context.Context, s *v1alpha1.Sandbox) (giveBack func(), err error) {
	giveBack, err = x.reserve(ctx, routing.KeyOwner{Team: s.Spec.Team, Namespace: s.Spec.Namespace, KeyID: s.Annotations[v1alpha1.AnnotationOwner]})
	if err != nil {
		return nil, err
	}
	return x.reserved.note(claimOf(s), giveBack), nil
}

// owner names snapshots that are counted together: with an empty key all of a namespace,
// else those of one API key in it.
type owner struct{ namespace, key string }

// reservations count the snapshots of this gateway whose Checkpoints are about to be
// created, so that two at once do not both take the last room. Snapshots that other
// gateways create at the same moment are not counted yet: together the gateways may exceed
// the limit by a few.
type reservations struct {
	mu     sync.Mutex // guards the rest
	counts map[owner]int
	pauses map[string]*reservation // by the claim of the sandbox that is paused
}

// reservation is room that the pause of a sandbox has reserved, until giveBack is called.
type reservation struct{ giveBack func() }

// note notes the reservation of a claim's pause. It returns a function that forgets the
// reservation and gives it back.
func (m *reservations) note(claim string, giveBack func()) func() {
	noted := &reservation{giveBack}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pauses == nil {
		m.pauses = map[string]*reservation{}
	}
	m.pauses[claim] = noted
	return func() {
		m.mu.Lock()
		if m.pauses[claim] == noted {
			delete(m.pauses, claim)
		}
		m.mu.Unlock()
		giveBack()
	}
}

// giveBack gives back the reservation of a claim's pause, if it has one, because its
// Checkpoint is created and counts by itself.
func (m *reservations) giveBack(claim string) {
	m.mu.Lock()
	noted := m.pauses[claim]
	delete(m.pauses, claim)
	m.mu.Unlock()
	if noted != nil {
		noted.giveBack()
	}
}

// add adds one to the count of each owner until giveBack is called, and returns the counts.
func (m *reservations) add(owners ...owner) (counts map[owner]int, giveBack func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counts == nil {
		m.counts = map[owner]int{}
	}
	counts = map[owner]int{}
	for _, o := range owners {
		m.counts[o]++
		counts[o] = m.counts[o]
	}
	return counts, sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, o := range owners {
			if m.counts[o]--; m.counts[o] == 0 {
				delete(m.counts, o)
			}
		}
	})
}

// reserve reserves room for one more snapshot of a caller; restapi.ErrSnapshotLimit if there is
// none. Call giveBack once the Checkpoint is created, or will not be.
func (x *Snapshots) reserve(ctx context.Context, caller routing.KeyOwner) (giveBack func(), err error) {
	limits := map[owner]int{}
	var l Limits
	if x.o.Limits != nil {
		l = x.o.Limits(caller.Namespace)
	}
	if l.Snapshots > 0 {
		limits[owner{namespace: caller.Namespace}] = l.Snapshots
	}
	if l.SnapshotsOfKey > 0 && caller.KeyID != "" {
		limits[owner{caller.Namespace, caller.KeyID}] = l.SnapshotsOfKey
	}
	if len(limits) == 0 {
		return func() {}, nil
	}
	owners := make([]owner, 0, len(limits))
	for o := range limits {
		owners = append(owners, o)
	}
	count, takeBack := x.reserved.add(owners...) // before the list: a Checkpoint that is created meanwhile may count twice, but is never missed
	defer func() {
		if err != nil { // then the result giveBack is nil
			takeBack()
		}
	}()
	all, err := x.list(ctx, caller.Namespace)
	if err != nil {
		return nil, fmt.Errorf("count snapshots: %w", err)
	}
	for i := range all {
		cp := &all[i]
		if !counts(cp) {
			continue
		}
		count[owner{namespace: caller.Namespace}]++
		if key := cp.Annotations[v1alpha1.AnnotationOwner]; key != "" { // without a key it would count for the namespace again
			count[owner{caller.Namespace, key}]++
		}
	}
	for o, most := range limits {
		if count[o] > most {
			return nil, restapi.ErrSnapshotLimit
		}
	}
	return takeBack, nil
}

// list lists a namespace's Checkpoints, and notes the bytes that they keep.
func (x *Snapshots) list(ctx context.Context, namespace string) ([]v1alpha1.Checkpoint, error) {
	begun := time.Now()
	var all v1alpha1.CheckpointList
	if err := x.o.API.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	x.ledger.listed(namespace, begun, all.Items)
	return all.Items, nil
}

// counts reports whether a Checkpoint counts for its namespace and API key.
func counts(cp *v1alpha1.Checkpoint) bool {
	return cp.DeletionTimestamp == nil && cp.Status.Phase != v1alpha1.CheckpointFailed
}
