package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Defaults of what neither sandbox, pool nor template sets.
const (
	DefaultStartupTimeout = time.Minute
	DefaultIdleTimeout    = 5 * time.Minute
)

// Timeouts returns the startup and idle timeouts of a sandbox: its own, else
// the pool's, else the template's, else the defaults. An idle timeout of 0
// means never. pool and template may be nil.
func Timeouts(s *Sandbox, pool *SandboxPool, template *SandboxTemplateSpec) (startup, idle time.Duration) {
	startup, idle = DefaultStartupTimeout, DefaultIdleTimeout
	if template != nil {
		startup, idle = override(startup, template.StartupTimeout), override(idle, template.IdleTimeout)
	}
	if pool != nil {
		startup, idle = override(startup, pool.Spec.StartupTimeout), override(idle, pool.Spec.IdleTimeout)
	}
	return override(startup, s.Spec.Timeouts.Startup), override(idle, s.Spec.Timeouts.Idle)
}

func override(d time.Duration, by *metav1.Duration) time.Duration {
	if by == nil {
		return d
	}
	return by.Duration
}
