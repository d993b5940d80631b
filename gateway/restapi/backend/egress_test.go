package backend

import (
	"net/netip"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/egress"
	"github.com/sandlane/sandlane/gateway/restapi"
)

// blocks reads a list with commas.
func blocks(list string) (all []netip.Prefix) {
	for text := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' }) {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestPolicyOf(t *testing.T) {
	closed, err := egress.ClosedRanges([]string{"10.96.0.0/12"})
	if err != nil {
		t.Fatal(err)
	}
	const v4, v6 = " 169.254.0.0/16 10.96.0.0/12", " fe80::/10 fd00:ec2::254/128"
	for _, c := range []struct{ allow, deny, want string }{
		{"", "", "0.0.0.0/0" + v4 + ", ::/0" + v6 + ", names"},
		{"", "10.0.0.0/8", "0.0.0.0/0 10.0.0.0/8" + v4 + ", ::/0" + v6 + ", names"},
		{"10.1.0.0/16,1.1.1.1/32", "10.0.0.0/8,fd00::/8", "10.1.0.0/16, 1.1.1.1/32, 0.0.0.0/0 10.0.0.0/8" + v4 + ", ::/0 fd00::/8" + v6 + ", names"},
		{"", "0.0.0.0/0,::/0", ""},
		{"8.8.8.8/32,2001:db8::/32", "0.0.0.0/0,::/0", "8.8.8.8/32, 2001:db8::/32"},
		{"10.0.0.0/8,128.0.0.0/1,169.254.169.254/32", "0.0.0.0/0,::/0", "10.0.0.0/8 10.96.0.0/12, 128.0.0.0/1 169.254.0.0/16"},
		{"", "10.0.0.0/8,10.1.0.0/16,10.1.0.0/16", "0.0.0.0/0 10.0.0.0/8 10.1.0.0/16 10.1.0.0/16" + v4 + ", ::/0" + v6 + ", names"},
	} {
		p := policyOf(&v1alpha1.Sandbox{}, restapi.Egress{Allow: blocks(c.allow), Deny: blocks(c.deny)}, closed)
		var lines []string
		for _, rule := range p.Spec.Egress {
			if len(rule.To) == 0 {
				t.Errorf("allow %s, deny %s: a rule for all addresses: %+v", c.allow, c.deny, rule)
			}
			if len(rule.Ports) > 0 {
				lines = append(lines, "names")
				continue
			}
			for _, to := range rule.To {
				lines = append(lines, strings.Join(append([]string{to.IPBlock.CIDR}, to.IPBlock.Except...), " "))
			}
		}
		if got := strings.Join(lines, ", "); got != c.want {
			t.Errorf("allow %s, deny %s: %q, want %q", c.allow, c.deny, got, c.want)
		}
		if types := p.Spec.PolicyTypes; len(types) != 1 || types[0] != networkingv1.PolicyTypeEgress || len(p.Spec.Ingress) > 0 {
			t.Errorf("it is about %v, and has %d rules for incoming connections", types, len(p.Spec.Ingress))
		}
	}
}
