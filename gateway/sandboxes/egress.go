package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/e2b"
)

// A sandbox's rules for outgoing connections are a NetworkPolicy of its own. The
// policy is their only record:
//   - none: the sandbox has no rules;
//   - there: it selects the pod by the sandbox's ID, whichever pod that is, before
//     and after the claim; a write replaces all of it;
//   - the sandbox ended: it stays, for the pod may take a while to die, and goes
//     with the sandbox's record, which owns it (garbage collection).
//
// Only sandboxes of generated IDs have rules: those IDs never come back, so a
// policy that outlives its sandbox selects nobody. A create writes the policy
// before it initialises sandboxd, without which nothing runs there; if it cannot
// be written the create fails and is undone. An update that fails leaves the rules
// as they were, or as they were to be.

// policyTries bounds how often a write of a policy starts over because another
// came first.
const policyTries = 5

// ErrNotOurs says that somebody else's policy has the name of a sandbox's.
var ErrNotOurs = errors.New("there is a NetworkPolicy of that name which is not the sandbox's")

func policyName(id string) string { return "sandbox-" + id }

// SetEgress implements e2b.Sandboxes.
func (x *Backend) SetEgress(ctx context.Context, namespace, id string, e e2b.Egress) error {
	s, err := x.get(ctx, namespace, id)
	if err != nil {
		return err
	}
	if !e.Restricted() {
		err = x.unrestrict(ctx, s)
	} else if err = x.canRestrict(ctx, namespace, s.Spec.Pool, e); err == nil {
		err = x.restrict(ctx, s, e)
	}
	if err != nil {
		return fmt.Errorf("set the network rules of sandbox %s: %w", id, err)
	}
	return nil
}

// canRestrict refuses rules where another policy already restricts the pool's
// pods: a pod may do what any of its policies allows, so ours would undo part of
// that one, and that one part of ours.
func (x *Backend) canRestrict(ctx context.Context, namespace, pool string, e e2b.Egress) error {
	if !e.Restricted() {
		return nil
	}
	others := &networkingv1.NetworkPolicyList{}
	notOurs, err := labels.Parse("!" + v1alpha1.LabelSandboxID)
	if err != nil {
		return err
	}
	if err := x.api.List(ctx, others, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: notOurs}); err != nil {
		return fmt.Errorf("list the policies of the namespace: %w", err)
	}
	pod := x.labelsOf(namespace, pool)
	for _, p := range others.Items {
		if !slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) { // the API server fills in what is left out
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err != nil || selector.Matches(pod) {
			return e2b.Invalidf("denyOut, allow_internet_access: NetworkPolicy %q restricts what this template's sandboxes connect to, and Kubernetes cannot combine it with rules of theirs", p.Name)
		}
	}
	return nil
}

// labelsOf are the labels of the pool's running pods, as far as they are the same
// for all.
func (x *Backend) labelsOf(namespace, pool string) labels.Set {
	set := labels.Set{}
	if p, ok := x.index.Pool(namespace, pool); ok {
		if t := x.index.Template(p); t != nil {
			maps.Copy(set, t.Template.Labels)
		}
	}
	set[v1alpha1.LabelPool], set[v1alpha1.LabelPhase] = pool, string(v1alpha1.PodRunning)
	return set
}

// restrict makes the rules those of the sandbox. It may be repeated.
func (x *Backend) restrict(ctx context.Context, s *v1alpha1.Sandbox, e e2b.Egress) error {
	if !e.Restricted() {
		return nil
	}
	want := policyOf(s, e)
	var err error
	for range policyTries {
		if err = x.api.Create(ctx, want.DeepCopy()); !apierrors.IsAlreadyExists(err) {
			break
		}
		var is *networkingv1.NetworkPolicy
		if is, err = x.policy(ctx, s); err != nil {
			break
		}
		if is == nil {
			continue // it went just now
		}
		is.Spec = want.Spec
		if err = x.api.Update(ctx, is); !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("write NetworkPolicy %s: %w", want.Name, err)
	}
	return nil
}

// unrestrict takes a sandbox's rules away.
func (x *Backend) unrestrict(ctx context.Context, s *v1alpha1.Sandbox) error {
	is, err := x.policy(ctx, s)
	if err != nil || is == nil {
		return err
	}
	err = x.api.Delete(ctx, is, client.Preconditions{UID: &is.UID})
	if err = client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("delete NetworkPolicy %s: %w", is.Name, err)
	}
	return nil
}

// policy reads a sandbox's policy; nil if it has none. One of that name that is
// not its own is an error: it is never written to.
func (x *Backend) policy(ctx context.Context, s *v1alpha1.Sandbox) (*networkingv1.NetworkPolicy, error) {
	p := &networkingv1.NetworkPolicy{}
	err := x.api.Get(ctx, client.ObjectKey{Namespace: s.Spec.Namespace, Name: policyName(s.Name)}, p)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read NetworkPolicy %s: %w", policyName(s.Name), err)
	}
	for _, owner := range p.OwnerReferences {
		if owner.UID == s.UID {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrNotOurs, p.Name)
}

// policyOf says the rules in Kubernetes' words.
func policyOf(s *v1alpha1.Sandbox, e e2b.Egress) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{}
	p.Namespace, p.Name = s.Spec.Namespace, policyName(s.Name)
	p.Labels = map[string]string{v1alpha1.LabelSandboxID: s.Name}
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "Sandbox", Name: s.Name, UID: s.UID,
	}}
	p.Spec.PodSelector.MatchLabels = map[string]string{v1alpha1.LabelSandboxID: s.Name}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	var peers []networkingv1.NetworkPolicyPeer
	add := func(block networkingv1.IPBlock) {
		peers = append(peers, networkingv1.NetworkPolicyPeer{IPBlock: &block})
	}
	for _, a := range e.Allow {
		add(networkingv1.IPBlock{CIDR: a.String()})
	}
	for _, all := range []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)} {
		block := networkingv1.IPBlock{CIDR: all.String()}
		denied := false
		for _, d := range e.Deny {
			denied = denied || d == all
			if d.Addr().Is4() == all.Addr().Is4() {
				block.Except = append(block.Except, d.String())
			}
		}
		if !denied {
			add(block)
		}
	}
	// No rule at all denies everything; a rule without peers would allow it.
	if len(peers) > 0 {
		p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: peers}}
	}
	return p
}
