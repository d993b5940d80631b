package backend

import (
	"slices"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/restapi"
)

// setPauses writes into a template how its sandboxes may be paused, and are paused by
// default: as each of the pools says that may give them their pods. Where the
// pools disagree on a default, or there is no pool, that of a pool without spec.pause counts.
func setPauses(d *restapi.Template, spec *v1alpha1.SandboxTemplateSpec, pools []*v1alpha1.SandboxPoolSpec) {
	if len(pools) == 0 {
		pools = []*v1alpha1.SandboxPoolSpec{nil}
	}
	all := func(says func(pool *v1alpha1.SandboxPoolSpec) bool) bool {
		return !slices.ContainsFunc(pools, func(pool *v1alpha1.SandboxPoolSpec) bool { return !says(pool) })
	}
	allow := func(mode v1alpha1.PauseMode) bool {
		return spec != nil && v1alpha1.Freezable(&spec.Template.Spec) &&
			all(func(pool *v1alpha1.SandboxPoolSpec) bool { return v1alpha1.AllowsPause(pool, mode) })
	}
	resume := func(by v1alpha1.AutoResume) bool {
		return all(func(pool *v1alpha1.SandboxPoolSpec) bool { return pauseDefaults(pool).AutoResume == by })
	}
	d.Pausable, d.Hibernates = allow(v1alpha1.PauseFreeze), allow(v1alpha1.PauseHibernate)
	d.AutoPause = all(func(pool *v1alpha1.SandboxPoolSpec) bool {
		return pauseDefaults(pool).OnTimeout == v1alpha1.TimeoutPause
	})
	d.AutoPauseFiles = all(func(pool *v1alpha1.SandboxPoolSpec) bool {
		return pauseDefaults(pool).OnTimeoutMode == v1alpha1.PauseHibernate
	})
	d.AutoResumeFiles = resume(v1alpha1.AutoResumeAlways)
	d.AutoResume = d.AutoResumeFiles || resume(v1alpha1.AutoResumeWithMemory)
}

// pauseDefaults are the timeouts that a pool gives sandboxes whose clients say nothing.
func pauseDefaults(pool *v1alpha1.SandboxPoolSpec) (t v1alpha1.SandboxTimeouts) {
	v1alpha1.PauseDefaults(&t, pool)
	return t
}
