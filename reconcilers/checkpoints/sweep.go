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

// Sweeper deletes data that no Checkpoint names: a gateway died and left it, or put it after
// the Checkpoint was deleted.
type Sweeper struct {
	// Live must not read from a cache.
	Live  client.Reader
	Store Store
	// Partial removes archives that were not written to their end. It may be nil.
	Partial func(context.Context) error
	// Clock is the real one if nil.
	Clock clock.WithTicker
}

// SetupWithManager registers the sweeper. Call it once, before the manager starts.
func (s *Sweeper) SetupWithManager(mgr ctrl.Manager) error { return mgr.Add(s) }

// Start implements manager.Runnable.
func (s *Sweeper) Start(ctx context.Context) error {
	if s.Clock == nil {
		s.Clock = clock.RealClock{}
	}
	ticker := s.Clock.NewTicker(sweepEvery)
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

// Sweep deletes such data once. It lists the store before the Checkpoints. A Checkpoint is
// created before its data, so data that no Checkpoint in that later list names will never be
// named by one.
func (s *Sweeper) Sweep(ctx context.Context) error {
	kept, err := s.Store.List(ctx)
	if err != nil {
		return err
	}
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
	for _, one := range kept {
		if !named[one.ID] {
			errs = append(errs, s.Store.Delete(ctx, one.ID))
		}
	}
	if s.Partial != nil {
		errs = append(errs, s.Partial(ctx))
	}
	return errors.Join(errs...)
}
