package files

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/checkpoint"
	"github.com/sandlane/sandlane/gateway/restapi"
)

const (
	// spare is the part of the store that snapshots may not use: one in so many. It is for
	// the files of sandboxes that hibernate.
	spare = 8
	// roomEvery is how many bytes of an archive are written between two looks at the store.
	roomEvery = 8 << 20
	// listedFor is how long a list of Checkpoints says what a namespace keeps.
	listedFor = 10 * time.Second
)

// ledger has the bytes that namespaces keep in the store, and those that this gateway writes.
// What other gateways write at the same moment is not counted yet: together the gateways may
// exceed the limits by that.
type ledger struct {
	mu      sync.Mutex // guards the rest, and each budget's bytes and done
	kept    map[string]kept
	budgets map[*budget]struct{}
}

// kept are the bytes of a namespace's Checkpoints, in all and by API key, by a list that was
// begun then.
type kept struct {
	begun time.Time
	all   int64
	byKey map[string]int64
}

// listed takes in a list of a namespace's Checkpoints. What was written before it counts in it.
func (m *ledger) listed(namespace string, begun time.Time, all []v1alpha1.Checkpoint) {
	now := kept{begun: begun, byKey: map[string]int64{}}
	for i := range all {
		cp := &all[i] // one that is being deleted has its bytes until it is gone
		now.all += cp.Status.Bytes
		now.byKey[cp.Annotations[v1alpha1.AnnotationOwner]] += cp.Status.Bytes
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if begun.Before(m.kept[namespace].begun) {
		return
	}
	if m.kept == nil {
		m.kept = map[string]kept{}
	}
	m.kept[namespace] = now
	for b := range m.budgets {
		if b.namespace == namespace && !b.done.IsZero() && b.done.Before(begun) {
			delete(m.budgets, b)
		}
	}
}

// prune forgets namespaces in which nothing is written and whose list is old: they are listed
// again before anything is, and may be gone. mu is held.
func (m *ledger) prune() {
	used := map[string]bool{}
	for b := range m.budgets {
		used[b.namespace] = used[b.namespace] || b.done.IsZero()
	}
	old := func(namespace string) bool {
		return !used[namespace] && time.Since(m.kept[namespace].begun) >= listedFor
	}
	maps.DeleteFunc(m.budgets, func(b *budget, _ struct{}) bool { return old(b.namespace) })
	maps.DeleteFunc(m.kept, func(namespace string, _ kept) bool { return old(namespace) })
}

// budget bounds the bytes of one archive, while it is written, by what its namespace and API
// key keep and what the store has free. The states of its bytes:
//
//	written   they count here, and the store shows that they are used
//	kept      the Checkpoint says so: they count here until a list shows it
//	given up  they count no more
type budget struct {
	x              *Snapshots
	ctx            context.Context // of the call
	namespace, key string
	pause          bool

	bytes  int64
	done   time.Time // when the Checkpoint said that they are kept
	looked int64     // bytes at the last look at the store; of the goroutine that writes
}

// newBudget begins a budget. The caller calls end.
func (x *Snapshots) newBudget(ctx context.Context, cp *v1alpha1.Checkpoint) (*budget, error) {
	b := &budget{x: x, ctx: ctx, namespace: cp.Namespace, key: cp.Annotations[v1alpha1.AnnotationOwner], pause: cp.Spec.Cause == v1alpha1.CheckpointPause, looked: -roomEvery}
	x.ledger.mu.Lock()
	x.ledger.prune()
	fresh := time.Since(x.ledger.kept[b.namespace].begun) < listedFor
	if x.ledger.budgets == nil {
		x.ledger.budgets = map[*budget]struct{}{}
	}
	x.ledger.budgets[b] = struct{}{}
	x.ledger.mu.Unlock()
	if fresh {
		return b, nil
	}
	if _, err := x.list(ctx, b.namespace); err != nil {
		b.end(err)
		return nil, fmt.Errorf("count the bytes of snapshots: %w", err)
	}
	return b, nil
}

// end ends a budget: err is nil if its bytes are kept.
func (b *budget) end(err error) {
	b.x.ledger.mu.Lock()
	defer b.x.ledger.mu.Unlock()
	if err != nil {
		delete(b.x.ledger.budgets, b)
		return
	}
	b.done = time.Now()
}

// take counts bytes that are about to be written; restapi.ErrSnapshotLimit or
// checkpoint.ErrFull if they may not be.
func (b *budget) take(n int) error {
	m := &b.x.ledger
	m.mu.Lock()
	b.bytes += int64(n)
	if b.bytes-b.looked < roomEvery {
		m.mu.Unlock()
		return nil
	}
	b.looked = b.bytes
	all, ofKey := m.kept[b.namespace].all, m.kept[b.namespace].byKey[b.key]
	for other := range m.budgets {
		if other.namespace == b.namespace {
			all += other.bytes
			if other.key == b.key {
				ofKey += other.bytes
			}
		}
	}
	m.mu.Unlock()
	room, err := b.x.o.Store.Room(b.ctx)
	if err != nil {
		return err
	}
	var l Limits
	if b.x.o.Limits != nil {
		l = b.x.o.Limits(b.namespace)
	}
	if b.key == "" {
		ofKey = 0
	}
	return mayKeep(l, room, b.pause, all, ofKey)
}

// mayKeep decides whether an archive may grow whose namespace keeps `all` bytes with it, and
// its API key ofKey of them.
func mayKeep(l Limits, room checkpoint.Room, pause bool, all, ofKey int64) error {
	over := func(bytes int64, factor int, free int64) bool {
		return factor > 0 && float64(bytes) > float64(factor)*float64(free)
	}
	free := room.Free
	switch {
	case room.All <= 0: // a file system that does not say
		return nil
	case pause:
		if over(all, l.PauseBytes, free) || over(ofKey, l.PauseBytesOfKey, free) {
			return restapi.ErrSnapshotLimit
		}
		return nil
	}
	if free -= room.All / spare; free <= 0 {
		return fmt.Errorf("%w: the rest is for sandboxes that hibernate", checkpoint.ErrFull)
	}
	if over(all, l.SnapshotBytes, free) || over(ofKey, l.SnapshotBytesOfKey, free) {
		return restapi.ErrSnapshotLimit
	}
	return nil
}
