package egress

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

func closing(t *testing.T, ranges ...string) Closed {
	t.Helper()
	closed, err := ClosedRanges(ranges)
	if err != nil {
		t.Fatal(err)
	}
	return closed
}

func TestClosedRanges(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.0/8": "", "2001:db8::/32": "", "10.0.0.1/32": "",
		"": "no CIDR block", "10.0.0.1": "no CIDR block", "::ffff:10.0.0.0/104": "no CIDR block",
		"10.0.0.1/8": "did you mean 10.0.0.0/8", "0.0.0.0/0": "close everything", "::/0": "close everything",
	} {
		closed, err := ClosedRanges([]string{text})
		if want == "" {
			if err != nil || !closed.Covers(netip.MustParsePrefix(text)) {
				t.Errorf("%s: %v, %v", text, closed, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestCovers(t *testing.T) {
	closed := closing(t, "10.96.0.0/12")
	for text, want := range map[string]bool{
		"169.254.169.254/32": true, "169.254.0.0/16": true, "169.0.0.0/8": false, "0.0.0.0/0": false,
		"fe80::1/128": true, "fd00:ec2::254/128": true, "fd00:ec2::/64": false, "::/0": false,
		"10.100.0.0/16": true, "10.96.0.0/12": true, "10.96.0.0/11": false, "10.95.0.0/16": false,
	} {
		if got := closed.Covers(netip.MustParsePrefix(text)); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// Of each pool pod one policy for outgoing connections is in charge: the base policy,
// or the sandbox's own.
func TestBasePolicyLeavesOwnRulesAlone(t *testing.T) {
	var base *networkingv1.NetworkPolicy
	for _, p := range Policies("team", "system", closing(t, "10.96.0.0/12")) {
		if p.Name == "sandlane-egress" {
			base = p
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(&base.Spec.PodSelector)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		pod  labels.Set
		want bool
	}{
		{"warming", labels.Set{v1alpha1.LabelPool: "p", v1alpha1.LabelPhase: "warming"}, true},
		{"running", labels.Set{v1alpha1.LabelPool: "p", v1alpha1.LabelPhase: "running", v1alpha1.LabelSandboxID: "s"}, true},
		{"with rules", labels.Set{v1alpha1.LabelPool: "p", v1alpha1.LabelPhase: "running", v1alpha1.LabelSandboxID: "s", v1alpha1.LabelRules: v1alpha1.RulesOwn}, false},
		{"with names alone", labels.Set{v1alpha1.LabelPool: "p", v1alpha1.LabelPhase: "running", v1alpha1.LabelSandboxID: "s", v1alpha1.LabelRules: v1alpha1.RulesNames}, false},
		{"not of a pool", labels.Set{"app": "x"}, false},
	} {
		if got := selector.Matches(c.pod); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	want := map[string]string{"0.0.0.0/0": "169.254.0.0/16 10.96.0.0/12", "::/0": "fe80::/10 fd00:ec2::254/128"}
	for _, to := range base.Spec.Egress[0].To {
		if got := strings.Join(to.IPBlock.Except, " "); got != want[to.IPBlock.CIDR] {
			t.Errorf("%s but %s, want but %s", to.IPBlock.CIDR, got, want[to.IPBlock.CIDR])
		}
	}
	if names := base.Spec.Egress[1]; len(base.Spec.Egress[0].To) != 2 || len(names.Ports) != 2 || len(names.To) != 1 {
		t.Errorf("the rules are %+v", base.Spec.Egress)
	}
}

// Pods of ByName pools reach egress processes from the start. One with rules of its own does
// by its own policy, beside which there may be none.
func TestByNamePodsReachEgress(t *testing.T) {
	for _, p := range Policies("team", "system", closing(t)) {
		if p.Name != "sandlane-egress-processes" {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err != nil {
			t.Fatal(err)
		}
		byName := labels.Set{v1alpha1.LabelPool: "p", v1alpha1.LabelEgress: string(v1alpha1.EgressByName)}
		if !selector.Matches(byName) || selector.Matches(labels.Set{v1alpha1.LabelPool: "p"}) ||
			selector.Matches(labels.Set{v1alpha1.LabelPool: "p", v1alpha1.LabelEgress: string(v1alpha1.EgressByName), v1alpha1.LabelRules: v1alpha1.RulesOwn}) {
			t.Errorf("it is for %s", selector)
		}
		to := p.Spec.Egress[0].To[0]
		if len(p.Spec.Egress) != 1 || len(p.Spec.Egress[0].Ports) != 4 || to.PodSelector.MatchLabels["app"] != "sandlane-egress" || to.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "system" {
			t.Errorf("it allows %+v", p.Spec.Egress)
		}
		return
	}
	t.Error("there is no such policy")
}

// A pod whose sandbox may connect by egress processes alone is for one policy, which opens
// nothing else.
func TestNamesAlone(t *testing.T) {
	pod := labels.Set{
		v1alpha1.LabelPool: "p", v1alpha1.LabelPhase: "running", v1alpha1.LabelSandboxID: "s",
		v1alpha1.LabelEgress: string(v1alpha1.EgressByName), v1alpha1.LabelRules: v1alpha1.RulesNames,
	}
	var found []string
	for _, p := range Policies("team", "system", closing(t)) {
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err != nil {
			t.Fatal(err)
		}
		if p.Spec.PolicyTypes[0] != networkingv1.PolicyTypeEgress || !selector.Matches(pod) {
			continue
		}
		found = append(found, p.Name)
		if len(p.Spec.Egress) != 1 || len(p.Spec.Egress[0].Ports) != 4 || len(p.Spec.Egress[0].To) != 1 || p.Spec.Egress[0].To[0].PodSelector.MatchLabels["app"] != "sandlane-egress" {
			t.Errorf("%s allows %+v", p.Name, p.Spec.Egress)
		}
	}
	if len(found) != 1 {
		t.Errorf("the policies for its outgoing connections are %q", found)
	}
}

func TestDocumentedPolicies(t *testing.T) {
	want, err := YAML("default", "sandlane-system", closing(t))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../docs/network-policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("docs/network-policies.yaml is not what this package renders: run `make generate`")
	}
}
