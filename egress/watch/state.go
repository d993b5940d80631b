package watch

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/egress/claims"
	"github.com/sandlane/sandlane/egress/names"
	"github.com/sandlane/sandlane/egress/seal"
)

// state is what the watches have shown. A pod's claim counts once its sandbox was seen that
// names the pod too: only then is it known what the sandbox may connect to.
type state struct {
	table Table
	open  func(seal.Place, []byte) ([]byte, error)
	log   *slog.Logger

	// mu also orders the calls of the table.
	mu        sync.Mutex
	pods      map[string]*corev1.Pod         // by UID
	claimed   map[string]string              // the UID of the pod that names a sandbox, by the sandbox's ID
	sandboxes map[string]*knownSandbox       // by ID
	listed    struct{ pods, sandboxes bool } // guarded by mu

	podsListed, sandboxesListed chan struct{} // closed with the first list
}

// knownSandbox is a sandbox that is bound and has not ended.
type knownSandbox struct {
	*v1alpha1.Sandbox
	policy *names.Policy
}

func newState(table Table, open func(seal.Place, []byte) ([]byte, error), log *slog.Logger) *state {
	return &state{
		table: table, open: open, log: log, pods: map[string]*corev1.Pod{}, claimed: map[string]string{}, sandboxes: map[string]*knownSandbox{},
		podsListed: make(chan struct{}), sandboxesListed: make(chan struct{}),
	}
}

// seePod takes in a pod as it is now. mu is held.
func (s *state) seePod(pod *corev1.Pod) {
	uid := string(pod.UID)
	s.forgetClaim(uid)
	s.pods[uid] = pod
	if id := pod.Labels[v1alpha1.LabelSandboxID]; id != "" {
		s.claimed[id] = uid
	}
	s.tell(pod)
}

// dropPod takes in that a pod is gone. mu is held.
func (s *state) dropPod(uid string) {
	s.forgetClaim(uid)
	delete(s.pods, uid)
	s.table.Gone(uid)
}

func (s *state) forgetClaim(uid string) {
	if was := s.pods[uid]; was != nil {
		if id := was.Labels[v1alpha1.LabelSandboxID]; s.claimed[id] == uid {
			delete(s.claimed, id)
		}
	}
}

// seeSandbox takes in a sandbox as it is now. mu is held.
func (s *state) seeSandbox(x *v1alpha1.Sandbox) {
	was := s.sandboxes[x.Name]
	switch {
	case x.Spec.End != nil || x.Spec.Binding == nil:
		delete(s.sandboxes, x.Name)
	case was != nil && was.UID == x.UID && *was.Spec.Binding == *x.Spec.Binding && equality.Semantic.DeepEqual(was.Spec.Egress, x.Spec.Egress):
		return
	default:
		s.sandboxes[x.Name] = &knownSandbox{x, s.policyOf(x)}
	}
	s.tellOf(x.Name)
}

// dropSandbox takes in that a sandbox is gone. mu is held.
func (s *state) dropSandbox(id string) {
	delete(s.sandboxes, id)
	s.tellOf(id)
}

// tellOf tells the table of the pod that names a sandbox.
func (s *state) tellOf(id string) {
	if pod := s.pods[s.claimed[id]]; pod != nil {
		s.tell(pod)
	}
}

// tell tells the table of a pod: what it says, and whose its sandbox says it is.
func (s *state) tell(pod *corev1.Pod) {
	rv, err := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	addr, noAddr := netip.ParseAddr(v1alpha1.RoutableAddress(pod))
	if err != nil || noAddr != nil || !addr.Is4() || !serves(pod) {
		s.table.Gone(string(pod.UID))
		return
	}
	seen := claims.Pod{UID: string(pod.UID), Addr: addr, RV: rv}
	if id := pod.Annotations[v1alpha1.AnnotationClaim]; id != "" {
		x := s.sandboxes[pod.Labels[v1alpha1.LabelSandboxID]]
		if x != nil && v1alpha1.Backs(pod, x.Sandbox) {
			seen.Claim = &claims.Claim{Namespace: pod.Namespace, SandboxID: x.Name, ClaimID: id, Policy: x.policy}
		}
	}
	s.table.See(seen)
}

// serves reports whether a pod may be connecting to hosts: one that stops has lost its claim.
func serves(pod *corev1.Pod) bool {
	switch v1alpha1.PhaseOf(pod) {
	case v1alpha1.PodIdle, v1alpha1.PodStarting, v1alpha1.PodRunning:
		return pod.DeletionTimestamp == nil && !v1alpha1.Finished(pod)
	}
	return false
}

// denyAll is the policy of a sandbox whose own cannot be read.
var denyAll = func() *names.Policy {
	p, err := names.NewPolicy(names.Rules{DenyAll: true})
	if err != nil {
		panic(err) // it has nothing that could be wrong
	}
	return p
}()

// policyOf is what a sandbox may connect to. What cannot be read allows nothing.
func (s *state) policyOf(x *v1alpha1.Sandbox) *names.Policy {
	if x.Spec.Egress == nil {
		return &names.Policy{}
	}
	rules, err := s.rulesOf(x)
	var p *names.Policy
	if err == nil {
		p, err = names.NewPolicy(rules)
	}
	if err != nil {
		s.log.Error("a sandbox may connect to nothing: its rules cannot be read", "sandbox", x.Name, "error", err)
		return denyAll
	}
	return p
}

func (s *state) rulesOf(x *v1alpha1.Sandbox) (names.Rules, error) {
	e := x.Spec.Egress
	rules := names.Rules{DenyAll: e.DenyAll, AllowNames: e.AllowNames}
	var err error
	if rules.AllowBlocks, err = prefixes(e.AllowBlocks); err != nil {
		return rules, err
	}
	if rules.DenyBlocks, err = prefixes(e.DenyBlocks); err != nil {
		return rules, err
	}
	if len(e.Rules) == 0 && len(e.Sealed) == 0 {
		return rules, nil
	}
	raw, err := s.open(seal.OfSandbox(x.Spec.Namespace, x.Name), e.Sealed)
	if err != nil {
		return rules, fmt.Errorf("what is sealed: %w", err)
	}
	if json.Unmarshal(raw, &rules.Headers) != nil { // its error could show a value
		return rules, errors.New("what is sealed are no rules")
	}
	return rules, nil
}

func prefixes(list []string) ([]netip.Prefix, error) {
	var read []netip.Prefix
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("a block of addresses: %w", err)
		}
		read = append(read, p.Masked())
	}
	return read, nil
}
