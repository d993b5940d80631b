package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/egress"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// A sandbox's rules for outgoing connections are a NetworkPolicy of its own. The
// policy is their only record:
//   - none: the sandbox never had rules; the namespace's base policy is for its pod;
//   - there: it selects the pod by the sandbox's ID, whichever pod that is, before
//     and after the claim; a write replaces all of it. It stays when the rules are
//     cleared, and then opens what the base policy does;
//   - the sandbox ended: it stays, for the pod may take a while to die, and goes
//     with the sandbox's record, which owns it (garbage collection).
//
// The pod gets its label (package egress) once the policy is written, and keeps
// both: no order of writes, of several gateways at once, leaves a pod to no policy
// at all, which would open what is closed to every sandbox.
//
// Only sandboxes of generated IDs have rules: those IDs never come back, so a
// policy that outlives its sandbox selects no pod. A create writes policy and label
// before it initialises sandboxd, without which nothing runs there; if they cannot
// be written the create fails and is undone. An update that fails leaves the rules
// as they were, or as they were to be.

// policyTries bounds how often a write of a policy starts over because another
// came first.
const policyTries = 5

// ErrNotOurs says that a policy which is not Sandlane's has the name of a sandbox's.
var ErrNotOurs = errors.New("there is a NetworkPolicy of that name which is not the sandbox's")

func policyName(id string) string { return v1alpha1.SandboxPolicyPrefix + id }

// SetEgress implements restapi.Sandboxes.
func (x *Backend) SetEgress(ctx context.Context, namespace, id string, e restapi.Egress) error {
	s, err := x.get(ctx, namespace, id)
	if err != nil {
		return err
	}
	if e.Restricted() {
		err = x.canRestrict(ctx, namespace, s.Spec.Pool, e)
	}
	pool, there := x.index.Pool(namespace, s.Spec.Pool)
	switch {
	case err != nil:
	case poolNames(s) != nil:
		err = restapi.Invalidf("the sandbox was made by a first request, and what such sandboxes connect to is its pool's to say (firstRequest.egress)")
	case s.Spec.Egress != nil, there && byName(pool): // its pod is one with egress ByName, or its next one is
		err = x.setSpec(ctx, s, e)
	case e.ByName():
		err = restapi.Invalidf("pool %s has no egress by name", s.Spec.Pool)
	}
	if err == nil {
		err = x.setEgress(ctx, s, e)
	}
	if err != nil {
		return fmt.Errorf("set the network rules of sandbox %s: %w", id, err)
	}
	return nil
}

// AskedEgress implements restapi.Sandboxes. It reads the policy from the API server: the last
// rules may have been set by another gateway just now.
func (x *Backend) AskedEgress(ctx context.Context, sandbox restapi.Sandbox) (restapi.AskedEgress, error) {
	asked := restapi.AskedEgress{}
	if sandbox.Internet {
		asked.Internet = new(true)
	}
	if sandbox.PoolNames != nil {
		asked.AllowOut, asked.DenyOut = sandbox.PoolNames, &[]string{"0.0.0.0/0"}
	}
	if !v1alpha1.GeneratedID(sandbox.ID) {
		return asked, nil
	}
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: sandbox.ID, UID: sandbox.UID}}
	s.Spec.Namespace = sandbox.Namespace
	p, err := x.policy(ctx, s)
	if err != nil || p == nil {
		return asked, err
	}
	asked = restapi.AskedEgress{}
	if text := p.Annotations[v1alpha1.AnnotationAsked]; text != "" {
		if err := json.Unmarshal([]byte(text), &asked); err != nil {
			return restapi.AskedEgress{}, fmt.Errorf("read what was asked of NetworkPolicy %s: %w", p.Name, err)
		}
	}
	return asked, nil
}

func (x *Backend) setEgress(ctx context.Context, s *v1alpha1.Sandbox, e restapi.Egress) error {
	if e.Restricted() {
		return x.restrict(ctx, s, e)
	}
	is, err := x.policy(ctx, s)
	if err != nil || is == nil {
		return err
	}
	want := x.policyOf(s, e)
	other, err := x.overlapping(ctx, s.Spec.Namespace, s.Spec.Pool)
	if err != nil {
		return err
	}
	if other != "" {
		want.Spec.Egress = nil // leaves all to the other one
	}
	return x.write(ctx, s, want)
}

// canRestrict refuses rules that open what is closed, and rules where another policy
// already restricts the pool's pods: a pod may do what any of its policies allows,
// so each of the two policies would undo a part of the other.
func (x *Backend) canRestrict(ctx context.Context, namespace, pool string, e restapi.Egress) error {
	if !e.Restricted() {
		return nil
	}
	for _, a := range e.Allow {
		if x.closed.Covers(a) {
			return restapi.Invalidf("allowOut: %s is closed to all sandboxes of this cluster", a)
		}
	}
	other, err := x.overlapping(ctx, namespace, pool)
	if err != nil {
		return err
	}
	if other != "" {
		return restapi.Invalidf("denyOut, allow_internet_access: NetworkPolicy %q restricts what this template's sandboxes connect to, and Kubernetes cannot combine it with rules of theirs", other)
	}
	return nil
}

// overlapping is the name of a policy that is for outgoing connections of the pool's
// pods with rules of their own; empty without one. The base policy leaves those
// alone.
func (x *Backend) overlapping(ctx context.Context, namespace, pool string) (string, error) {
	others := &networkingv1.NetworkPolicyList{}
	notOurs, err := labels.Parse("!" + v1alpha1.LabelSandboxID)
	if err != nil {
		return "", err
	}
	if err := x.api.List(ctx, others, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: notOurs}); err != nil {
		return "", fmt.Errorf("list the policies of the namespace: %w", err)
	}
	pod := x.labelsOf(namespace, pool)
	for _, p := range others.Items {
		if !slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) { // the API server fills in what is left out
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err != nil || selector.Matches(pod) {
			return p.Name, nil
		}
	}
	return "", nil
}

// labelsOf are the labels of the pool's running pods with rules of their own, as far
// as they are the same for all.
func (x *Backend) labelsOf(namespace, pool string) labels.Set {
	set := labels.Set{}
	if p, ok := x.index.Pool(namespace, pool); ok {
		if t := x.index.Template(p); t != nil {
			maps.Copy(set, t.Template.Labels)
		}
	}
	set[v1alpha1.LabelPool], set[v1alpha1.LabelPhase] = pool, string(v1alpha1.PodRunning)
	set[v1alpha1.LabelRules] = v1alpha1.RulesOwn
	return set
}

// restrict makes the rules those of the sandbox. It may be repeated.
func (x *Backend) restrict(ctx context.Context, s *v1alpha1.Sandbox, e restapi.Egress) error {
	if !e.Restricted() {
		return nil
	}
	if err := x.write(ctx, s, x.policyOf(s, e)); err != nil {
		return err
	}
	return x.leaveBase(ctx, s)
}

// KeepEgress makes the sandbox's rules for outgoing connections, if it has any, hold for
// the pod that it is bound to: a resumed sandbox has another pod. It may be repeated.
func (x *Backend) KeepEgress(ctx context.Context, s *v1alpha1.Sandbox) error {
	if !v1alpha1.GeneratedID(s.Name) {
		return nil
	}
	is, err := x.policy(ctx, s)
	if err != nil || is == nil {
		return err
	}
	return x.leaveBase(ctx, s)
}

// write makes the policy the sandbox's.
func (x *Backend) write(ctx context.Context, s *v1alpha1.Sandbox, want *networkingv1.NetworkPolicy) error {
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
		metav1.SetMetaDataAnnotation(&is.ObjectMeta, v1alpha1.AnnotationAsked, want.Annotations[v1alpha1.AnnotationAsked])
		if err = x.api.Update(ctx, is); !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("write NetworkPolicy %s: %w", want.Name, err)
	}
	return nil
}

// leaveBase sets the label that takes the sandbox's pod out of the base policy; its own
// policy is written. A pod without the claim is that of a sandbox that has ended. A
// sandbox that hibernates has no pod: KeepEgress labels its next one.
func (x *Backend) leaveBase(ctx context.Context, s *v1alpha1.Sandbox) error {
	b := s.Spec.Binding
	if b == nil && s.Spec.Restore != nil {
		// It may have got one for which KeepEgress did not see the policy yet.
		live := &v1alpha1.Sandbox{}
		err := x.api.Get(ctx, client.ObjectKey{Name: s.Name}, live)
		switch {
		case err != nil && !apierrors.IsNotFound(err):
			return fmt.Errorf("read sandbox %s: %w", s.Name, err)
		case err != nil, live.UID != s.UID, live.Spec.End != nil:
			return restapi.ErrNotFound
		case live.Spec.Binding == nil && live.Spec.Restore != nil:
			return nil
		}
		b = live.Spec.Binding
	}
	if b == nil {
		return restapi.ErrNotFound
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Spec.Namespace, Name: b.PodName}}
	err := x.api.Patch(ctx, pod, writes.For(types.UID(b.PodUID)).
		Test(writes.Claim, b.ClaimID).
		Set(writes.Label(v1alpha1.LabelRules), v1alpha1.RulesOwn).
		Build())
	switch {
	case writes.Moved(err):
		return restapi.ErrNotFound
	case err != nil:
		return fmt.Errorf("label pod %s: %w", b.PodName, err)
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

// policyOf makes the NetworkPolicy of the rules, which lets a sandbox with egress by name
// connect to egress processes too.
func (x *Backend) policyOf(s *v1alpha1.Sandbox, e restapi.Egress) *networkingv1.NetworkPolicy {
	p := policyOf(s, e, x.closed)
	if pool, ok := x.index.Pool(s.Spec.Namespace, s.Spec.Pool); s.Spec.Egress != nil || ok && byName(pool) {
		p.Spec.Egress = append(p.Spec.Egress, egress.ToProcesses(x.system))
	}
	return p
}

// policyOf makes the NetworkPolicy of the rules.
func policyOf(s *v1alpha1.Sandbox, e restapi.Egress, closed egress.Closed) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{}
	p.Namespace, p.Name = s.Spec.Namespace, policyName(s.Name)
	p.Labels = map[string]string{v1alpha1.LabelSandboxID: s.Name}
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "Sandbox", Name: s.Name, UID: s.UID,
	}}
	if asked, err := json.Marshal(e.Asked); err == nil { // strings and a bool: it has no error
		p.Annotations = map[string]string{v1alpha1.AnnotationAsked: string(asked)}
	}
	p.Spec.PodSelector.MatchLabels = map[string]string{v1alpha1.LabelSandboxID: s.Name}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	p.Spec.Egress = egress.Rules(e.Allow, e.Deny, closed)
	return p
}
