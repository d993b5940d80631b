package schedule

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// tellPool notes on the SandboxPool, once per time that requests wait, that
// claims find no idle pod. The mutex is held. A note that could not be written
// is tried again by the next request that finds nothing. It only saves the controller
// the time until its next poll of what waits.
func (s *PoolScheduler) tellPool() {
	if s.poolNotified {
		return
	}
	s.poolNotified = true
	since := time.Now()
	s.claims.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
		defer cancel()
		if err := s.markPending(ctx, since); client.IgnoreNotFound(err) != nil {
			s.log.Warn("cannot tell the pool that claims wait", "error", err)
			s.mu.Lock()
			s.poolNotified = false
			s.mu.Unlock()
		}
	})
}

func (s *PoolScheduler) markPending(ctx context.Context, since time.Time) error {
	pool := &v1alpha1.SandboxPool{}
	pool.Namespace, pool.Name = s.namespace, s.pool
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`,
		v1alpha1.AnnotationScaleUpPending, since.UTC().Format(time.RFC3339Nano))
	return s.client.Patch(ctx, pool, client.RawPatch(types.MergePatchType, []byte(patch)))
}
