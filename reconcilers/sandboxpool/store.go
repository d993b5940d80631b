package sandboxpool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// SandboxStore keeps the records of ended sandboxes: their Status with the stop
// record. reconcilers/sandbox asks it; without one a Sandbox goes as soon as its
// address may serve again. It must be safe for concurrent use and must not wait
// for long.
type SandboxStore interface {
	// Save is given each sandbox that has ended, its record complete, before the
	// object may go; at least once, so it must bear repetition. After an error it
	// is given it again, and the object stays.
	Save(ctx context.Context, s *v1alpha1.Sandbox) error
	// Keep is how long the object itself must stay yet, as the record. 0 lets it go.
	Keep(s *v1alpha1.Sandbox, now time.Time) time.Duration
}

// Defaults of ObjectStore.
const (
	DefaultRecordTTL = time.Hour
	DefaultRecordCap = 1000
	// DefaultNameHold is the default of ObjectStore.NameHold: longer than a client
	// retries, and as long as a gateway's lease.
	DefaultNameHold = 10 * time.Minute
	pruneInterval   = 10 * time.Second
)

// ObjectStore is the default store: the Sandbox objects are the records. It is
// also a Runnable of the leader, which deletes the oldest records of namespaces
// that have more than Cap; between two looks there may be more.
//
// While a record is there no request makes the sandbox anew. That matters for IDs
// that a first request may name, and only for those: their records stay for NameHold
// however many end, and do not count for Cap before.
type ObjectStore struct {
	// Client reads from the manager's cache and deletes.
	Client client.Client
	// TTL is how long a record is kept, Cap how many a namespace may have. 0 means
	// the defaults.
	TTL time.Duration
	Cap int
	// NameHold is how long the record of a sandbox that was not named by the REST API
	// is kept whatever the Cap; TTL is the most. 0 means the default.
	NameHold time.Duration
	// Interval is the time between two looks at the caps; 0 means 10 s.
	Interval time.Duration
	// Clock is nil for the real one.
	Clock clock.PassiveClock
}

// Save has nothing to do: the object is the record.
func (o *ObjectStore) Save(context.Context, *v1alpha1.Sandbox) error { return nil }

// Keep counts the TTL from the end.
func (o *ObjectStore) Keep(s *v1alpha1.Sandbox, now time.Time) time.Duration {
	if s.Spec.End == nil {
		return cmp.Or(o.TTL, DefaultRecordTTL)
	}
	return max(cmp.Or(o.TTL, DefaultRecordTTL)-now.Sub(s.Spec.End.At.Time), 0)
}

// NeedLeaderElection is true: one process prunes.
func (o *ObjectStore) NeedLeaderElection() bool { return true }

// Start prunes until ctx is done.
func (o *ObjectStore) Start(ctx context.Context) error {
	ticker := time.NewTicker(cmp.Or(o.Interval, pruneInterval))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := o.prune(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "old records are pruned at the next look")
		}
	}
}

// indexRecord is the field index of the Sandboxes that are records.
const indexRecord = "record"

// recordOf marks a Sandbox that is a record: one that is over and fenced, and stays.
func recordOf(o client.Object) []string {
	s := o.(*v1alpha1.Sandbox)
	if s.Spec.End == nil || s.Status.Phase != v1alpha1.SandboxEnded || s.DeletionTimestamp != nil {
		return nil
	}
	return []string{"kept"}
}

// SetupWithManager adds the store to the manager, with the index that it reads by.
// Call it once per manager, before the manager starts.
func (o *ObjectStore) SetupWithManager(mgr ctrl.Manager) error {
	// Registering an index needs no context.
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.Sandbox{}, indexRecord, recordOf); err != nil {
		return fmt.Errorf("indexing records: %w", err)
	}
	if err := mgr.Add(o); err != nil {
		return fmt.Errorf("adding the store of records: %w", err)
	}
	return nil
}

func (o *ObjectStore) prune(ctx context.Context) error {
	var all v1alpha1.SandboxList
	if err := o.Client.List(ctx, &all, client.MatchingFields{indexRecord: "kept"}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the records: %w", err)
	}
	now := time.Now()
	if o.Clock != nil {
		now = o.Clock.Now()
	}
	var errs []error
	for _, s := range tooMany(all.Items, cmp.Or(o.Cap, DefaultRecordCap), now.Add(-cmp.Or(o.NameHold, DefaultNameHold))) {
		gone := &v1alpha1.Sandbox{}
		gone.Name = s.Name
		err := o.Client.Delete(ctx, gone, client.Preconditions{UID: &s.UID})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("deleting the record of sandbox %s: %w", s.Name, err))
		}
	}
	return errors.Join(errs...)
}

// tooMany returns the records that exceed their namespace's cap: those that ended first. It
// leaves out Sandboxes that have not ended or are not fenced yet, and those that a request
// could make anew and that ended after held. It is pure.
func tooMany(all []v1alpha1.Sandbox, most int, held time.Time) []*v1alpha1.Sandbox {
	records := map[string][]*v1alpha1.Sandbox{}
	for i := range all {
		s := &all[i]
		if recordOf(s) == nil {
			continue
		}
		if v1alpha1.GeneratedID(s.Name) || !s.Spec.End.At.After(held) {
			records[s.Spec.Namespace] = append(records[s.Spec.Namespace], s)
		}
	}
	var excess []*v1alpha1.Sandbox
	for _, list := range records {
		if len(list) <= most {
			continue
		}
		slices.SortFunc(list, func(a, b *v1alpha1.Sandbox) int {
			return cmp.Or(a.Spec.End.At.Compare(b.Spec.End.At.Time), cmp.Compare(a.Name, b.Name))
		})
		excess = append(excess, list[:len(list)-most]...)
	}
	return excess
}
