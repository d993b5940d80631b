package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// sweepEvery is the time between two sweeps.
const sweepEvery = 10 * time.Minute

// unnamedTTL is how long data is kept that no completed Checkpoint names: after a restore of
// etcd it may be the only copy of the files of a sandbox that hibernated since the backup.
const unnamedTTL = 24 * time.Hour

// Sweeper deletes data that no Checkpoint has named for a day: a gateway died and left it, or
// put it after the Checkpoint was deleted. The day begins when this process first finds no
// name for it.
type Sweeper struct {
	// Live must not read from a cache.
	Live  client.Reader
	Store Store
	// Partial removes archives that were not written to their end. It may be nil.
	Partial func(context.Context) error
	// Clock is the real one if nil.
	Clock clock.WithTicker

	// unnamed says since when no Checkpoint has named an archive. Only Sweep uses it.
	unnamed map[string]time.Time
}

// SetupWithManager registers the sweeper. Call it once, before the manager starts.
func (s *Sweeper) SetupWithManager(mgr ctrl.Manager) error { return mgr.Add(s) }

// Start implements manager.Runnable.
func (s *Sweeper) Start(ctx context.Context) error {
	ticker := s.clock().NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "sweeping the checkpoint store")
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *Sweeper) clock() clock.WithTicker {
	if s.Clock == nil {
		return clock.RealClock{}
	}
	return s.Clock
}

// Sweep deletes such data once. Not safe for concurrent use. It lists the store before the
// Checkpoints. A Checkpoint is created before its data, so data that no Checkpoint in that
// later list names will be named by one only if etcd is restored again. Data that was put
// less than unnamedTTL before the list of Checkpoints, by the store's clock, stays also if
// this process has missed it for longer.
func (s *Sweeper) Sweep(ctx context.Context) error {
	kept, err := s.Store.List(ctx)
	if err != nil {
		return err
	}
	now := s.clock().Now() // before the list
	var all v1alpha1.CheckpointList
	if len(kept) > 0 {
		if err := s.Live.List(ctx, &all); err != nil {
			return fmt.Errorf("listing checkpoints: %w", err)
		}
	}
	named := make(map[string]bool, len(all.Items))
	for i := range all.Items {
		named[string(all.Items[i].UID)] = true
	}
	var errs []error
	unnamed := map[string]time.Time{}
	for _, one := range kept {
		if named[one.ID] {
			continue
		}
		since, seen := s.unnamed[one.ID]
		if !seen {
			since = now
			log.FromContext(ctx).Info("no Checkpoint names an archive: it is deleted in a day unless one does by then", "archive", one.ID, "put", one.At)
		}
		if now.Sub(since) < unnamedTTL || now.Sub(one.At) < unnamedTTL {
			unnamed[one.ID] = since
			continue
		}
		if err := s.Store.Delete(ctx, one.ID); err != nil {
			unnamed[one.ID] = since
			errs = append(errs, err)
		}
	}
	s.unnamed = unnamed
	if s.Partial != nil {
		errs = append(errs, s.Partial(ctx))
	}
	return errors.Join(errs...)
}
