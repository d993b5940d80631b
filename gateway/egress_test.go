package gateway

import (
	"context"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/egress"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/restapi/backend"
	"github.com/sandlane/sandlane/routing"
)

// rules are those that allow and deny blocks, each a list with commas.
func rules(allow, deny string) (e restapi.Egress) {
	read := func(list string) (blocks []netip.Prefix) {
		for text := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' }) {
			blocks = append(blocks, netip.MustParsePrefix(text))
		}
		return blocks
	}
	return restapi.Egress{Allow: read(allow), Deny: read(deny), Asked: restapi.AskedEgress{AllowOut: &[]string{allow}, DenyOut: &[]string{deny}}}
}

// closedTo4 and closedTo6 are closed to every sandbox of the world's gateways.
const (
	closedTo4 = "169.254.0.0/16 10.96.0.0/12"
	closedTo6 = "fe80::/10 fd00:ec2::254/128"
)

// but is what a policy says that allows everything but what is closed and denied.
func but(denied string) string {
	return "0.0.0.0/0 but " + denied + closedTo4 + ", ::/0 but " + closedTo6 + ", names"
}

// said is what a policy allows, in one line.
func said(p *networkingv1.NetworkPolicy) string {
	if p == nil {
		return "no policy"
	}
	if !slices.Equal(p.Spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}) || len(p.Spec.Ingress) > 0 {
		return "not about outgoing connections alone"
	}
	var lines []string
	for _, rule := range p.Spec.Egress {
		if len(rule.To) == 0 {
			return "a rule for all addresses"
		}
		if len(rule.Ports) > 0 {
			lines = append(lines, "names")
			continue
		}
		for _, to := range rule.To {
			line := to.IPBlock.CIDR
			if len(to.IPBlock.Except) > 0 {
				line += " but " + strings.Join(to.IPBlock.Except, " ")
			}
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, ", ")
}

// policyOfSandbox reads the policy of a sandbox; nil if it has none.
func (w *world) policyOfSandbox(id string) *networkingv1.NetworkPolicy {
	w.t.Helper()
	p := &networkingv1.NetworkPolicy{}
	err := w.c.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: "sandbox-" + id}, p)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return p
}

// otherPolicy makes an operator's policy for pods of a pool.
func (w *world) otherPolicy(name, pool string, kind networkingv1.PolicyType) *networkingv1.NetworkPolicy {
	w.t.Helper()
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{kind}
	p.Spec.PodSelector.MatchLabels = map[string]string{v1alpha1.LabelPool: pool}
	if err := w.c.Create(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// selected are the pods of the world that a policy is for, by sandbox.
func (w *world) selected(p *networkingv1.NetworkPolicy) (sandboxes []string) {
	w.t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
	if err != nil {
		w.t.Fatal(err)
	}
	var pods corev1.PodList
	if err := w.c.List(w.t.Context(), &pods, client.InNamespace(w.ns)); err != nil {
		w.t.Fatal(err)
	}
	for _, pod := range pods.Items {
		if selector.Matches(labels.Set(pod.Labels)) {
			sandboxes = append(sandboxes, pod.Labels[v1alpha1.LabelSandboxID])
		}
	}
	return sandboxes
}

// wantBase wants the base policy of the namespace to be for the sandbox's pod, or not.
func (w *world) wantBase(id string, want bool) {
	w.t.Helper()
	for _, p := range egress.Policies(w.ns, "sandlane-system", nil) {
		if p.Name == "sandlane-egress" {
			if got := slices.Contains(w.selected(p), id); got != want {
				w.t.Errorf("%s is for the pod of %s: %v, want %v", p.Name, id, got, want)
			}
		}
	}
}

// What is closed to every sandbox cannot be opened for one.
func TestEgressToWhatIsClosed(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	w.ready()
	for _, closed := range []string{"169.254.169.254/32", "10.96.0.1/32", "10.100.0.0/16", "fe80::1/128"} {
		n := w.new(newID())
		n.Egress = rules("1.1.1.1/32,"+closed, "0.0.0.0/0,::/0")
		_, err := g.create(t, n)
		wantError(t, closed, err, restapi.ErrInvalid)
		if err == nil || !strings.Contains(err.Error(), "allowOut: "+closed) {
			t.Errorf("%s: it says %v", closed, err)
		}
	}
	n := w.new(newID())
	n.Egress = rules("10.0.0.0/8", "0.0.0.0/0,::/0")
	if _, err := g.create(t, n); err != nil {
		t.Fatal(err)
	}
	if got, want := said(w.policyOfSandbox(n.ID)), "10.0.0.0/8 but 10.96.0.0/12"; got != want {
		t.Errorf("a block with closed addresses in it: %q, want %q", got, want)
	}
}

// The documented policies are no hindrance to a sandbox's own rules.
func TestEgressBesideTheBasePolicy(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	w.ready()
	for _, p := range egress.Policies(w.ns, "sandlane-system", nil) {
		if err := w.c.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	n := w.new(newID())
	n.Egress = rules("", "10.0.0.0/8")
	if _, err := g.create(t, n); err != nil {
		t.Fatal(err)
	}
	wantError(t, "SetEgress", g.api.sandboxes.SetEgress(t.Context(), w.ns, n.ID, rules("", "0.0.0.0/0,::/0")), nil)
}

// The rules of a create are there before anything can run in the sandbox, belong
// to it, and are for its pod alone.
func TestEgressOfCreate(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	d := w.sandboxd()
	d.hang.Store(true)
	w.pod("base", d.addr, nil)
	n := w.new(newID())
	n.Egress = rules("10.1.2.3/32", "10.0.0.0/8")
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err := g.api.sandboxes.Create(ctx, n)
		done <- err
	}()
	select {
	case <-d.hanging:
	case err := <-done:
		t.Fatalf("it was made before sandboxd answered: %v", err)
	}
	want := "10.1.2.3/32, " + but("10.0.0.0/8 ")
	if got := said(w.policyOfSandbox(n.ID)); got != want {
		t.Errorf("while sandboxd is initialised: %q, want %q", got, want)
	}
	w.wantBase(n.ID, false)
	d.hang.Store(false)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	p := w.policyOfSandbox(n.ID)
	if got := said(p); got != want {
		t.Errorf("afterwards: %q, want %q", got, want)
	}
	s := w.sandbox(n.ID)
	if o := p.OwnerReferences; len(o) != 1 || o[0].UID != s.UID || o[0].Kind != "Sandbox" || o[0].Name != n.ID || o[0].APIVersion != "sandlane.dev/v1alpha1" {
		t.Errorf("it belongs to %+v", o)
	}

	// Another sandbox, and unclaimed pods.
	w.ready()
	free := newID()
	if _, err := g.create(t, w.new(free)); err != nil {
		t.Fatal(err)
	}
	w.ready()
	if p := w.policyOfSandbox(free); p != nil {
		t.Errorf("a sandbox without rules has %q", said(p))
	}
	w.wantBase(free, true)
	if got := w.selected(p); !slices.Equal(got, []string{n.ID}) {
		t.Errorf("the policy is for the pods of %q, want %s", got, n.ID)
	}

	// The end of the sandbox is not the end of its pod.
	if err := g.api.sandboxes.End(t.Context(), w.ns, n.ID); err != nil {
		t.Fatal(err)
	}
	if got := said(w.policyOfSandbox(n.ID)); got != want {
		t.Errorf("after the end: %q, want %q", got, want)
	}
}

func TestSetEgress(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	x, ctx := g.api.sandboxes, t.Context()
	w.ready()
	n := w.new(newID())
	if _, err := g.create(t, n); err != nil {
		t.Fatal(err)
	}
	set := func(what string, e restapi.Egress, want string) {
		t.Helper()
		wantError(t, what, x.SetEgress(ctx, w.ns, n.ID, e), nil)
		sandbox, err := x.Get(ctx, w.ns, n.ID)
		if err != nil {
			t.Fatal(err)
		}
		if asked, err := x.AskedEgress(ctx, sandbox); err != nil || w.policyOfSandbox(n.ID) != nil && !reflect.DeepEqual(asked, e.Asked) {
			t.Errorf("%s: asked for %+v, %v", what, asked, err)
		}
		if got := said(w.policyOfSandbox(n.ID)); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	set("none", restapi.Egress{}, "no policy")
	w.wantBase(n.ID, true)
	set("first", rules("", "10.0.0.0/8"), but("10.0.0.0/8 "))
	w.wantBase(n.ID, false)
	first := w.policyOfSandbox(n.ID)
	set("others", rules("1.1.1.1/32", "0.0.0.0/0,::/0"), "1.1.1.1/32")
	if w.policyOfSandbox(n.ID).UID != first.UID {
		t.Error("it was made anew: for a moment there was none")
	}
	set("cleared", restapi.Egress{}, but(""))
	w.wantBase(n.ID, false) // its own says the same, and there is no moment without one
	set("again", rules("", "0.0.0.0/0,::/0"), "")

	// Many at once: the rules are those of one of them.
	errs := make(chan error)
	for i := range 4 {
		e := rules("", []string{"10.0.0.0/8", "11.0.0.0/8"}[i%2])
		go func() { errs <- x.SetEgress(ctx, w.ns, n.ID, e) }()
	}
	for range 4 {
		wantError(t, "one of many", <-errs, nil)
	}
	if got := said(w.policyOfSandbox(n.ID)); got != but("10.0.0.0/8 ") && got != but("11.0.0.0/8 ") {
		t.Errorf("after many: %q", got)
	}

	before := said(w.policyOfSandbox(n.ID))
	wantError(t, "another namespace", x.SetEgress(ctx, "other", n.ID, restapi.Egress{}), restapi.ErrNotFound)
	if err := x.End(ctx, w.ns, n.ID); err != nil {
		t.Fatal(err)
	}
	wantError(t, "after the end", x.SetEgress(ctx, w.ns, n.ID, restapi.Egress{}), restapi.ErrNotFound)
	if got := said(w.policyOfSandbox(n.ID)); got != before {
		t.Errorf("refused, the rules are %q", got)
	}
}

// Kubernetes adds up what policies allow, so rules beside others' would hold
// neither these nor those.
func TestEgressBesideOtherPolicies(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	w.ready()
	w.otherPolicy("incoming", "base", networkingv1.PolicyTypeIngress)
	w.otherPolicy("another-pool", "nobody", networkingv1.PolicyTypeEgress)
	n := w.new(newID())
	n.Egress = rules("", "10.0.0.0/8")
	if _, err := g.create(t, n); err != nil {
		t.Fatalf("beside policies about something else: %v", err)
	}
	other := w.otherPolicy("locked-down", "base", networkingv1.PolicyTypeEgress)
	refused := w.new(newID())
	refused.Egress = n.Egress
	_, err := g.create(t, refused)
	wantError(t, "Create", err, restapi.ErrInvalid)
	if err == nil || !strings.Contains(err.Error(), "denyOut") || !strings.Contains(err.Error(), `"locked-down"`) {
		t.Errorf("it says %v", err)
	}
	if w.sandbox(refused.ID) != nil || w.policyOfSandbox(refused.ID) != nil {
		t.Error("something was made")
	}
	wantError(t, "SetEgress", g.api.sandboxes.SetEgress(t.Context(), w.ns, n.ID, rules("", "0.0.0.0/0,::/0")), restapi.ErrInvalid)
	if got := said(w.policyOfSandbox(n.ID)); got != but("10.0.0.0/8 ") {
		t.Errorf("refused, the rules are %q", got)
	}
	wantError(t, "clear", g.api.sandboxes.SetEgress(t.Context(), w.ns, n.ID, restapi.Egress{}), nil)
	if got := said(w.policyOfSandbox(n.ID)); got != "" {
		t.Errorf("cleared beside another policy, which it is to leave alone: %q", got)
	}
	w.ready()
	if _, err := g.create(t, w.new(newID())); err != nil {
		t.Errorf("without rules: %v", err)
	}
	// A selector that is not set is for all pods.
	if err := w.c.Delete(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	all := w.otherPolicy("for-all", "base", networkingv1.PolicyTypeEgress)
	all.Spec.PodSelector = metav1.LabelSelector{}
	if err := w.c.Update(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	_, err = g.create(t, refused)
	wantError(t, "Create beside one for all", err, restapi.ErrInvalid)
}

// Without its rules a sandbox is not made: there is another owner's policy of that
// name, which stays as it is.
func TestEgressThatCannotBeWritten(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	d := w.ready()
	n := w.new(newID())
	n.Egress = rules("", "10.0.0.0/8")
	theirs := w.otherPolicy("sandbox-"+n.ID, "nobody", networkingv1.PolicyTypeEgress)
	_, err := g.create(t, n)
	wantError(t, "Create", err, routing.ErrUnusable)
	w.ended(g, n.ID)
	if calls := d.calls(); len(calls) > 0 {
		t.Errorf("sandboxd was initialised: %+v", calls)
	}
	p := w.policyOfSandbox(n.ID)
	if p == nil || p.UID != theirs.UID || p.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("their policy is %+v", p)
	}

	w.ready()
	other := w.new(newID())
	if _, err := g.create(t, other); err != nil {
		t.Fatal(err)
	}
	theirs = w.otherPolicy("sandbox-"+other.ID, "nobody", networkingv1.PolicyTypeEgress)
	theirs.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: types.UID("x")}}
	if err := w.c.Update(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	for what, e := range map[string]restapi.Egress{"set": n.Egress, "clear": {}} {
		wantError(t, what, g.api.sandboxes.SetEgress(t.Context(), w.ns, other.ID, e), backend.ErrNotOurs)
	}
	if p := w.policyOfSandbox(other.ID); p == nil || p.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("their policy is %+v", p)
	}
}
