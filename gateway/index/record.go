package index

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// pod is what is kept of a pool pod. Immutable. Names that many pods share are
// handles, half the size of a string and with one copy of the text.
type pod struct {
	name, uid       string
	claim, sandbox  string // empty while unclaimed
	namespace, pool unique.Handle[string]
	addr            netip.Addr // the routable address; zero: the pod must not be reached
	rv              uint64
	phase           phase
	ready, deleting bool
	finished        bool                  // its containers have ended, by Kubernetes' status, whatever our phase says
	sandboxd        bool                  // it runs sandboxd
	initKey         unique.Handle[string] // what its sandboxd's initialisation is signed with
}

// phase is a v1alpha1.PodPhase in one byte. Only three matter here.
type phase uint8

const (
	otherPhase phase = iota
	idlePhase
	startingPhase
	runningPhase
)

// newPod returns the record of a pod. An error means that the API server sent
// something that cannot be compared: a resourceVersion that is no number.
func newPod(p *corev1.Pod) (*pod, error) {
	rv, err := parseRV(p.ResourceVersion)
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	r := &pod{
		name: p.Name, uid: string(p.UID),
		claim: p.Annotations[v1alpha1.AnnotationClaim], sandbox: p.Labels[v1alpha1.LabelSandboxID],
		namespace: unique.Make(p.Namespace), pool: unique.Make(p.Labels[v1alpha1.LabelPool]),
		rv: rv, deleting: p.DeletionTimestamp != nil, finished: v1alpha1.Finished(p), sandboxd: v1alpha1.RunsSandboxd(&p.Spec),
		initKey: unique.Make(p.Labels[v1alpha1.LabelInitKey]),
	}
	if addr, err := netip.ParseAddr(v1alpha1.RoutableAddress(p)); err == nil {
		r.addr = addr
	}
	switch v1alpha1.PhaseOf(p) {
	case v1alpha1.PodIdle:
		r.phase = idlePhase
	case v1alpha1.PodStarting:
		r.phase = startingPhase
	case v1alpha1.PodRunning:
		r.phase = runningPhase
	}
	opened := true
	for _, c := range p.Status.Conditions {
		switch c.Type {
		case corev1.PodReady:
			r.ready = c.Status == corev1.ConditionTrue
		case v1alpha1.PodConditionReachable:
			opened = c.Status == corev1.ConditionTrue
		}
	}
	r.ready = r.ready && opened
	return r, nil
}

// backs is v1alpha1.Backs on records.
func (p *pod) backs(id string, s *sandbox) bool {
	return s.claim != "" && s.podUID == p.uid && s.podName == p.name && s.namespace == p.namespace &&
		p.claim == s.claim && p.sandbox == id
}

// routable reports whether the pod may answer for the sandbox it names.
func (p *pod) routable() bool {
	return p.claim != "" && p.sandbox != "" && p.phase == runningPhase && !p.deleting && !p.finished && p.addr.IsValid()
}

// available reports whether the pod may be claimed.
func (p *pod) available() bool {
	return p.phase == idlePhase && p.claim == "" && p.ready && !p.deleting && !p.finished && p.addr.IsValid()
}

// sandbox is what is kept of a Sandbox. Immutable. Its ID is its key.
type sandbox struct {
	uid                    types.UID
	claim, podName, podUID string // the binding; empty without one
	namespace, pool, team  unique.Handle[string]
	env                    unique.Handle[string]
	release                string // token of the idle release under way of this claim
	private, unsecured     bool
	ended                  bool // or being deleted
	paused                 bool // it is to be frozen, and no request is routed to it
	awake                  bool // its status shows that it is not frozen, as of order
	resumes                bool // a request resumes it
	restoring              bool // its files are not restored yet
	// Both are uint32, not int64: the record then takes 128 bytes; the allocator's next
	// size is 144.
	endAt uint32 // when it ends at the latest, in seconds since 1970, until 2106; 0: no time is set
	order uint32 // spec.pauseOrder; 0 if it was never paused
}

func newSandbox(s *v1alpha1.Sandbox) *sandbox {
	r := &sandbox{
		uid: s.UID, namespace: unique.Make(s.Spec.Namespace), pool: unique.Make(s.Spec.Pool), team: unique.Make(s.Spec.Team), env: unique.Make(s.Spec.Env),
		private: s.Spec.Network.Private, unsecured: s.Spec.Network.Unsecured,
		ended:  s.Spec.End != nil || s.DeletionTimestamp != nil,
		paused: s.Spec.Paused, awake: v1alpha1.Awake(s), order: uint32(s.Spec.PauseOrder),
		resumes: v1alpha1.ResumedByRequests(s), restoring: v1alpha1.Restoring(s),
	}
	if b := s.Spec.Binding; b != nil {
		r.claim, r.podName, r.podUID = b.ClaimID, b.PodName, b.PodUID
		if release := s.Spec.Release; release != nil && release.ClaimID == b.ClaimID {
			r.release = release.Token
		}
	}
	if at := s.Spec.Timeouts.EndAt; at != nil {
		r.endAt = uint32(min(max(at.Unix(), 1), math.MaxUint32))
	}
	return r
}

// parseRV parses a resourceVersion that may be compared with others of its kind.
func parseRV(rv string) (uint64, error) {
	if _, err := resourceversion.CompareResourceVersion(rv, rv); err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resourceVersion %q: %w", rv, err)
	}
	return n, nil
}

// listedPod and listedSandbox are what a first list keeps of an object until it
// is complete, instead of the whole. The Reflector keys them by their name.
type (
	listedPod     struct{ *pod }
	listedSandbox struct {
		id string
		*sandbox
	}
)

// GetObjectMeta gives client-go's key function the name.
func (p listedPod) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: p.namespace.Value(), Name: p.name}
}

// GetObjectMeta gives client-go's key function the name.
func (s listedSandbox) GetObjectMeta() metav1.Object { return &metav1.ObjectMeta{Name: s.id} }
