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

// ReachOf returns what requests must show for a sandbox that was made by name from a pool.
// For a pool that allows no first requests it is ReachKey: the sandbox was made while the
// pool allowed them, or by hand.
func ReachOf(s *SandboxPoolSpec) FirstRequestReach {
	switch {
	case s == nil || s.FirstRequest == nil:
		return ReachKey
	case s.FirstRequest.Reach != "":
		return s.FirstRequest.Reach
	case s.FirstRequest.Access == AccessPublic:
		return ReachPublic
	}
	return ReachKey
}

func override(d time.Duration, by *metav1.Duration) time.Duration {
	if by == nil {
		return d
	}
	return by.Duration
}

// createdAtSlack is by how much a sandbox's spec.createdAt may be off its
// metadata.creationTimestamp: clocks differ, and a create may take a while.
const createdAtSlack = time.Minute

// SandboxCreatedAt returns when a sandbox was made, to the microsecond where its
// spec says so. What is further than a minute off the API server's own time does not
// count, since a sandbox's longest life is reckoned from it. It never changes.
func SandboxCreatedAt(s *Sandbox) time.Time {
	at := s.CreationTimestamp.Time
	if precise := s.Spec.CreatedAt; precise != nil && precise.Sub(at).Abs() <= createdAtSlack {
		return precise.Time
	}
	return at
}
