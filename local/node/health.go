package node

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/local/node/process"
)

// watchHealth runs the post-start hook and the probes of one run of the
// container until ctx is done, and says when the run must be killed.
// Order: hook, startup probe, then readiness and liveness together.
func (c *container) watchHealth(ctx context.Context, t process.Target, unhealthy chan<- error) {
	kill := func(err error) {
		select {
		case unhealthy <- err:
		default:
		}
	}
	if l := t.Spec.Lifecycle; l != nil {
		if err := t.RunHook(ctx, l.PostStart); err != nil {
			if ctx.Err() == nil {
				c.pod.event(corev1.EventTypeWarning, "FailedPostStartHook", "container %s: %v", c.name(), err)
				kill(fmt.Errorf("post-start hook: %w", err))
			}
			return
		}
	}
	if t.Spec.StartupProbe != nil {
		started, cancel := context.WithCancel(ctx)
		var ok bool
		t.Probe(started, t.Spec.StartupProbe, true, func(up bool, err error) {
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
	c.set(func(s *corev1.ContainerStatus) { s.Started, s.Ready = &yes, t.Spec.ReadinessProbe == nil })
	var loops sync.WaitGroup
	defer loops.Wait()
	if p := t.Spec.ReadinessProbe; p != nil {
		loops.Go(func() {
			last := false
			t.Probe(ctx, p, true, func(up bool, err error) {
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
	if p := t.Spec.LivenessProbe; p != nil {
		loops.Go(func() {
			t.Probe(ctx, p, false, func(up bool, err error) {
				if !up {
					kill(fmt.Errorf("liveness probe: %w", err))
				}
			})
		})
	}
}
