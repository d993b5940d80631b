package node

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// watchHealth runs the post-start hook and the probes of one run of the
// container until ctx is done, and says when the run must be killed.
// Order: hook, startup probe, then readiness and liveness together.
func (c *container) watchHealth(ctx context.Context, t target, unhealthy chan<- error) {
	kill := func(err error) {
		select {
		case unhealthy <- err:
		default:
		}
	}
	if l := t.spec.Lifecycle; l != nil {
		if err := t.runHook(ctx, l.PostStart); err != nil {
			if ctx.Err() == nil {
				c.pod.event(corev1.EventTypeWarning, "FailedPostStartHook", "container %s: %v", c.name(), err)
				kill(fmt.Errorf("post-start hook: %w", err))
			}
			return
		}
	}
	if t.spec.StartupProbe != nil {
		started, cancel := context.WithCancel(ctx)
		var ok bool
		probeLoop(started, t, t.spec.StartupProbe, true, func(up bool, err error) {
			if up {
				ok = true
			} else {
				kill(fmt.Errorf("startup probe: %w", err))
			}
			cancel()
		})
		cancel()
		if !ok {
			return
		}
	}
	if ctx.Err() != nil {
		return
	}
	yes := true
	c.set(func(s *corev1.ContainerStatus) { s.Started, s.Ready = &yes, t.spec.ReadinessProbe == nil })
	var loops sync.WaitGroup
	defer loops.Wait()
	if p := t.spec.ReadinessProbe; p != nil {
		loops.Go(func() {
			last := false
			probeLoop(ctx, t, p, true, func(up bool, err error) {
				if up == last {
					return
				}
				last = up
				if !up {
					c.pod.event(corev1.EventTypeWarning, "Unhealthy", "container %s: readiness probe: %v", c.name(), err)
				}
				c.set(func(s *corev1.ContainerStatus) { s.Ready = up && ctx.Err() == nil })
			})
		})
	}
	if p := t.spec.LivenessProbe; p != nil {
		loops.Go(func() {
			probeLoop(ctx, t, p, false, func(up bool, err error) {
				if !up {
					kill(fmt.Errorf("liveness probe: %w", err))
				}
			})
		})
	}
}
