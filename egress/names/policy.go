package names

import (
	"fmt"
	"net/netip"
)

// Limits of E2B's, where a host's rule is one list of headers.
const (
	maxRules       = 10
	maxRuleHost    = 128
	maxHeaders     = 20
	maxHeaderName  = 64
	maxHeaderValue = 2048
	maxSecrets     = 32 // of one rule
)

// Rules is what a policy is made of.
type Rules struct {
	// AllowNames are names, wildcards such as *.example.com, or *. They need DenyAll.
	AllowNames []string
	// AllowBlocks win over DenyBlocks. Neither has bits beyond its length.
	AllowBlocks, DenyBlocks []netip.Prefix
	// DenyAll denies what is not allowed.
	DenyAll bool
	// Headers are what requests to a host get: its name or wildcard → header → template.
	Headers map[string]map[string]string
}

// Policy says what one sandbox may connect to by name. The zero value allows everything
// and sets no header.
type Policy struct {
	allow       map[string]struct{}
	allowBlocks []netip.Prefix
	denyBlocks  []netip.Prefix
	denyAll     bool
	rules       map[string]*Rule
}

// Rule is what requests to a host get.
type Rule struct {
	// Pattern is the name or wildcard that it was given for.
	Pattern string
	// Headers replace those of a request. Their names are canonical.
	Headers map[string]Template
}

// NewPolicy reads rules. Its errors name the part that is wrong, without a header's value.
func NewPolicy(r Rules) (*Policy, error) {
	p := &Policy{allowBlocks: r.AllowBlocks, denyBlocks: r.DenyBlocks, denyAll: r.DenyAll, allow: map[string]struct{}{}, rules: map[string]*Rule{}}
	for _, text := range r.AllowNames {
		name, err := pattern(text)
		if err != nil {
			return nil, err
		}
		if !r.DenyAll {
			return nil, fmt.Errorf("%s is allowed, and so is everything else: deny 0.0.0.0/0 too", text)
		}
		p.allow[name] = struct{}{}
	}
	if len(r.Headers) > maxRules {
		return nil, fmt.Errorf("rules for %d hosts: at most %d", len(r.Headers), maxRules)
	}
	for host, headers := range r.Headers {
		rule, err := newRule(host, headers)
		if err != nil {
			return nil, fmt.Errorf("rule for %q: %w", host, err)
		}
		if p.rules[rule.Pattern] != nil {
			return nil, fmt.Errorf("rule for %q: there is another one for this host", host)
		}
		p.rules[rule.Pattern] = rule
	}
	return p, nil
}

// Decision is what a policy says of a host.
type Decision struct {
	// Allowed: the sandbox may connect to it.
	Allowed bool
	// Rule is what its requests get; nil is nothing, so that they pass as they are. It is
	// nil if the host is not allowed, since a rule opens nothing.
	Rule *Rule
}

// Decide says what becomes of a connection to a host, whose name is one of Host's.
func (p *Policy) Decide(host string) Decision {
	if _, named := match(p.allow, host); p.denyAll && !named {
		return Decision{}
	}
	rule, _ := match(p.rules, host)
	return Decision{Allowed: true, Rule: rule}
}

// DeniesAll reports whether everything is denied that Decide does not allow.
func (p *Policy) DeniesAll() bool { return p.denyAll }

// Dialled reports whether a host that is allowed may be reached at the address. A name that
// was allowed as such may at each; the blocks decide about others.
func (p *Policy) Dialled(host string, addr netip.Addr) bool {
	if _, named := match(p.allow, host); named {
		return true
	}
	return !p.denyAll && (contains(p.allowBlocks, addr) || !contains(p.denyBlocks, addr))
}
