package snapshots

import (
	"context"
	"fmt"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/e2b"
)

// MayKeep says whether the files of one more sandbox may be kept for its pause, which
// counts as a snapshot of its namespace and API key; e2b.ErrSnapshotLimit if not.
func (x *Snapshots) MayKeep(ctx context.Context, s *v1alpha1.Sandbox) error {
	end, err := x.reserve(ctx, e2b.KeyOwner{Team: s.Spec.Team, Namespace: s.Spec.Namespace, KeyID: s.Annotations[v1alpha1.AnnotationOwner]})
	if err == nil {
		end()
	}
	return err
}

// owner is whose snapshots are counted together: a namespace's, or those of one API key
// in it.
type owner struct{ namespace, key string }

// making counts the snapshots of this gateway whose objects are about to be made, so that
// two at once do not both take the last place. What other gateways make at the same moment
// is not counted yet: together they may make a few more than the limit.
type making struct {
	mu  sync.Mutex // guards the rest
	now map[owner]int
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

// reserve makes room for one more snapshot of a caller, or says e2b.ErrSnapshotLimit. end
// must be called once its object is made, or was not.
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
	count, made := x.making.begin(of...) // before the list, which may have some of them already
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
		if key := cp.Annotations[v1alpha1.AnnotationOwner]; key != "" { // owner with no key is the namespace
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
