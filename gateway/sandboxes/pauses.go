package sandboxes

import (
	"slices"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/e2b"
)

// setPauses writes into a template how its sandboxes may be paused: as each of the pools
// says that may give them their pods; where there is none, as a pool that says nothing.
func setPauses(d *e2b.Template, spec *v1alpha1.SandboxTemplateSpec, pools []*v1alpha1.SandboxPoolSpec) {
	if len(pools) == 0 {
		pools = []*v1alpha1.SandboxPoolSpec{nil}
	}
	all := func(says func(pool *v1alpha1.SandboxPoolSpec) bool) bool {
		return !slices.ContainsFunc(pools, func(pool *v1alpha1.SandboxPoolSpec) bool { return !says(pool) })
	}
	allow := func(mode v1alpha1.PauseMode) bool {
		return spec != nil && v1alpha1.Freezable(&spec.Template.Spec) &&
			all(func(pool *v1alpha1.SandboxPoolSpec) bool { return v1alpha1.PausesBy(pool, mode) })
	}
	d.Pausable, d.Hibernates = allow(v1alpha1.PauseFreeze), allow(v1alpha1.PauseHibernate)
}
