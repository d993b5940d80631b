package index

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Hooks are called for changes, from the goroutines of the watches and in their
// order: a hook must not block, nor wait for another hook. Nil ones are skipped.
// After a list they may be called again for an object that has not changed.
type Hooks struct {
	// SandboxChanged: routes to the sandbox are not valid any more: its end
	// was seen, its binding changed, its object or its running pod went, its
	// privacy changed, or it was paused or may have been. The route cache's Invalidate.
	SandboxChanged func(id string)
	// PodAvailable: the pod can be claimed: idle, Ready, not being deleted, its
	// address routable. Called for each event of such a pod. The pod is shared: do
	// not change it, and do not keep it.
	PodAvailable func(pod *corev1.Pod)
	// PodUnavailable: a pod that could be claimed no longer can, or left the pool.
	PodUnavailable func(namespace, pool string, uid types.UID)
	// PodsSeen: every pod event up to rv was applied and its hooks were called.
	PodsSeen func(rv uint64)
	// PodsRewound: the API server has gone back to an older state, so resourceVersions
	// of pods that were told before mean nothing any more. The next PodsSeen is of a
	// list that begins after this hook has returned.
	PodsRewound func()
	// SandboxOrPodChanged: the sandbox, or a pod that names it, changed in a way that may let
	// the requests that wait for it go on. Often it does not: they look again.
	SandboxOrPodChanged func(id string)
	// ClaimEnded: the sandbox ended, went, or is bound to another claim.
	ClaimEnded func(id, claimID string)
	// ReleaseBegun: an idle release of the claim is under way, with this token.
	ReleaseBegun func(id, claimID, token string)
	// ReleaseOff: the release with this token was seen before and is called off.
	// A release that is carried out ends in ClaimEnded.
	ReleaseOff func(id, claimID, token string)
	// PoolChanged: the pool is new, changed, or gone.
	PoolChanged func(namespace, name string, exists bool)
}

// complete fills in what is nil.
func (h *Hooks) complete() {
	if h.SandboxChanged == nil {
		h.SandboxChanged = func(string) {}
	}
	if h.PodAvailable == nil {
		h.PodAvailable = func(*corev1.Pod) {}
	}
	if h.PodUnavailable == nil {
		h.PodUnavailable = func(string, string, types.UID) {}
	}
	if h.PodsSeen == nil {
		h.PodsSeen = func(uint64) {}
	}
	if h.PodsRewound == nil {
		h.PodsRewound = func() {}
	}
	if h.SandboxOrPodChanged == nil {
		h.SandboxOrPodChanged = func(string) {}
	}
	if h.ClaimEnded == nil {
		h.ClaimEnded = func(string, string) {}
	}
	if h.ReleaseBegun == nil {
		h.ReleaseBegun = func(string, string, string) {}
	}
	if h.ReleaseOff == nil {
		h.ReleaseOff = func(string, string, string) {}
	}
	if h.PoolChanged == nil {
		h.PoolChanged = func(string, string, bool) {}
	}
}

// podChanged calls the hooks for a pod's change; either record may be nil. typed
// is the pod itself if new is available.
func (h *Hooks) podChanged(old, new *pod, typed *corev1.Pod) {
	if old != nil && old.routable() && (new == nil || !new.routable() || !sameTarget(old, new)) {
		h.SandboxChanged(old.sandbox)
	}
	if old != nil && old.available() && (new == nil || !new.available() || new.pool != old.pool) {
		h.PodUnavailable(old.namespace.Value(), old.pool.Value(), types.UID(old.uid))
	}
	if new != nil && new.available() {
		h.PodAvailable(typed)
	}
	if old != nil && old.sandbox != "" && (new == nil || new.sandbox != old.sandbox) {
		h.SandboxOrPodChanged(old.sandbox)
	}
	if new != nil && new.sandbox != "" && (old == nil || !sameTarget(old, new) ||
		old.phase != new.phase || old.deleting != new.deleting || old.finished != new.finished) {
		h.SandboxOrPodChanged(new.sandbox)
	}
}

// sameTarget reports whether both records of a pod lead the same sandbox's
// requests to the same place.
func sameTarget(a, b *pod) bool {
	return a.sandbox == b.sandbox && a.claim == b.claim && a.addr == b.addr
}

// sandboxChanged calls the hooks for a sandbox's change; either record may be nil.
func (h *Hooks) sandboxChanged(id string, old, new *sandbox) {
	if old != nil && new != nil && *old == *new {
		return
	}
	end := new != nil && new.ended && (old == nil || !old.ended)
	rebound := old != nil && old.claim != "" && (new == nil || new.claim != old.claim ||
		new.podUID != old.podUID || new.podName != old.podName)
	private := old != nil && new != nil && old.private != new.private
	// A pause may have come and gone between the two: what is routed to the sandbox must be
	// known to be awake anew.
	paused := new != nil && (old == nil && new.order != 0 || old != nil && new.order != old.order)
	if end || rebound || private || paused || new == nil {
		h.SandboxChanged(id)
	}
	h.releaseChanged(id, old, new)
	if rebound && !old.ended {
		h.ClaimEnded(id, old.claim)
	}
	if end && new.claim != "" {
		h.ClaimEnded(id, new.claim)
	}
	h.SandboxOrPodChanged(id)
}

// releaseChanged calls the hooks for a change of the sandbox's idle release. The hook of
// a new one comes before that of the old one, so that the claim stays held.
func (h *Hooks) releaseChanged(id string, old, new *sandbox) {
	was, is := "", ""
	if old != nil {
		was = old.release
	}
	if new != nil {
		is = new.release
	}
	if was == is || new == nil || new.ended {
		return
	}
	if is != "" {
		h.ReleaseBegun(id, new.claim, is)
	}
	if was != "" && old.claim == new.claim {
		h.ReleaseOff(id, old.claim, was)
	}
}
