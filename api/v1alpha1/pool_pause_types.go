package v1alpha1

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultPausedFor is how long a sandbox may be frozen. One without a pod may rest for
// ever.
const DefaultPausedFor = 24 * time.Hour

// PoolPause says how the sandboxes of a pool are paused.
//
// +kubebuilder:validation:XValidation:rule="!has(self.autoResume) || self.autoResume == 'Never' || has(self.onTimeout) && self.onTimeout == 'Pause'",message="autoResume needs onTimeout: Pause"
// +kubebuilder:validation:XValidation:rule="!has(self.hibernateAfter) || has(self.modes) && 'Hibernate' in self.modes",message="hibernateAfter needs Hibernate in modes"
type PoolPause struct {
	// Modes are those that the REST API and timeouts may pause in. Unset means Freeze.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	Modes []PauseMode `json:"modes,omitempty"`
	// OnTimeout and AutoResume are what gateways write into the sandboxes that they make
	// from the pool, unless the client asks for something else. A sandbox that is paused at a
	// timeout is frozen, or hibernates where the modes are Hibernate alone. A sandbox made by
	// hand says so itself.
	// +optional
	OnTimeout TimeoutAction `json:"onTimeout,omitempty"`
	// +optional
	AutoResume AutoResume `json:"autoResume,omitempty"`
	// PausedFor is how long a sandbox may be paused before it ends. Unset means 24h for
	// one that is frozen, and for ever for one that has no pod; 0s means for ever.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="not a duration such as 90s, 5m or 1h30m"
	PausedFor *metav1.Duration `json:"pausedFor,omitempty"`
	// HibernateAfter is how long a sandbox is frozen before it hibernates: its files are
	// kept, and its memory and processes are lost. Unset means that it does not.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="not a duration such as 90s, 5m or 1h30m"
	HibernateAfter *metav1.Duration `json:"hibernateAfter,omitempty"`
	// MaxPaused bounds the paused sandboxes of the pool that keep their pods: beyond it the
	// REST API answers 429 to a freeze, and a timeout ends the sandbox. Unset means half of maxPods, or no
	// limit where that has none; 0 means that none is paused.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxPaused *int32 `json:"maxPaused,omitempty"`
}

// AllowsPause reports whether the sandboxes of a pool may be paused in this mode. A nil
// spec stands for a pool that is gone.
func AllowsPause(pool *SandboxPoolSpec, mode PauseMode) bool {
	if pool == nil || pool.Pause == nil || len(pool.Pause.Modes) == 0 {
		return mode == PauseFreeze
	}
	return slices.Contains(pool.Pause.Modes, mode)
}

// MaxPaused is how many sandboxes of a pool may be frozen; false if that is not limited.
func MaxPaused(pool *SandboxPoolSpec) (int, bool) {
	switch {
	case pool == nil:
		return 0, false
	case pool.Pause != nil && pool.Pause.MaxPaused != nil:
		return int(*pool.Pause.MaxPaused), true
	}
	return int(pool.MaxPods+1) / 2, pool.MaxPods > 0
}

// PausedFor is how long a sandbox may be paused; 0 means for ever.
func PausedFor(s *Sandbox, pool *SandboxPoolSpec) time.Duration {
	switch {
	case s.Spec.Timeouts.PausedFor != nil:
		return s.Spec.Timeouts.PausedFor.Duration
	case pool != nil && pool.Pause != nil && pool.Pause.PausedFor != nil:
		return pool.Pause.PausedFor.Duration
	case Hibernated(s):
		return 0
	}
	return DefaultPausedFor
}

// HibernateAfter is how long a sandbox of a pool is frozen before it hibernates; 0 means
// for ever.
func HibernateAfter(pool *SandboxPoolSpec) time.Duration {
	if pool == nil || pool.Pause == nil || pool.Pause.HibernateAfter == nil || !AllowsPause(pool, PauseHibernate) {
		return 0
	}
	return pool.Pause.HibernateAfter.Duration
}

// PauseDefaults sets what a pool says of the timeouts of sandboxes that gateways make. Where
// the pool does not let them freeze, a timeout that pauses them hibernates them.
func PauseDefaults(t *SandboxTimeouts, pool *SandboxPoolSpec) {
	if pool == nil || pool.Pause == nil {
		return
	}
	t.OnTimeout, t.AutoResume = pool.Pause.OnTimeout, pool.Pause.AutoResume
	if t.OnTimeout == TimeoutPause && !AllowsPause(pool, PauseFreeze) && AllowsPause(pool, PauseHibernate) {
		t.OnTimeoutMode = PauseHibernate
	}
}
