package restapi

import (
	"fmt"
	"net/http"
	"net/netip"

	"github.com/sandlane/sandlane/egress/names"
	"github.com/sandlane/sandlane/gateway/restapi/api"
	"github.com/sandlane/sandlane/gateway/restapi/sandboxid"
)

// maxRules bounds the entries of a list: each address is a line in every node's filter.
const maxRules = 200

// allTraffic is what E2B answers if a name is allowed where everything is.
const allTraffic = "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to block all other traffic."

// Egress says which addresses a sandbox may connect to: those that are not
// denied, and those that are allowed although they are denied. The zero value is
// all of them.
type Egress struct {
	// Allow only matters beside Deny. No prefix has bits beyond its length.
	Allow, Deny []netip.Prefix
	// Asked is what the client wrote.
	Asked AskedEgress
	// Names are names of hosts and wildcards that are allowed although all is denied, and
	// Rules the headers that requests to a host get, by its name or wildcard. Only sandboxes
	// of a template with egress by name have them.
	Names []string
	Rules map[string]map[string]string
}

// AskedEgress is how a client asked for an Egress, which answers repeat. Nil: it did not.
type AskedEgress struct {
	Internet *bool     `json:"allowInternetAccess,omitempty"`
	AllowOut *[]string `json:"allowOut,omitempty"`
	DenyOut  *[]string `json:"denyOut,omitempty"`
}

// Restricted reports whether there is an address that it denies.
func (e Egress) Restricted() bool { return len(e.Deny) > 0 }

// ByName reports whether it needs a template with egress by name.
func (e Egress) ByName() bool { return len(e.Names) > 0 || len(e.Rules) > 0 }

// DeniesAll reports whether all is denied but what is allowed.
func (e Egress) DeniesAll() bool {
	for _, p := range e.Deny {
		if p == everything[0] {
			return true
		}
	}
	return false
}

// everything is what "0.0.0.0/0" means in E2B, where there is no IPv6.
var everything = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// egressOf reads the rules of a request whose fields have names with a prefix.
func egressOf(internet *bool, n api.SandboxNetwork, prefix string) (Egress, error) {
	var e Egress
	allow, hosts, err := destinations(n.AllowOut, prefix+"allowOut")
	if err != nil {
		return e, err
	}
	deny, denied, err := destinations(n.DenyOut, prefix+"denyOut")
	if err != nil {
		return e, err
	}
	if len(denied) > 0 {
		return e, unsupportedField(prefix+"denyOut", fmt.Sprintf("%q is not supported, only IP addresses and CIDR blocks are", denied[0]))
	}
	rules, err := rulesOf(n.Rules, prefix+"rules")
	if err != nil {
		return e, err
	}
	all := is(internet, false)
	for _, p := range deny {
		all = all || p.Bits() == 0
	}
	if all {
		deny = everything
	}
	e.Names, e.Rules, e.Asked = hosts, rules, AskedEgress{Internet: internet, AllowOut: n.AllowOut, DenyOut: n.DenyOut}
	if len(deny) > 0 { // else what is allowed was never denied
		e.Allow, e.Deny = allow, deny
	}
	return e, nil
}

// suits refuses what sandboxes of the template cannot have, by fields with a prefix.
func (e Egress) suits(t Template, prefix string) error {
	switch {
	case len(e.Names) > 0 && !t.ByName:
		return unsupportedField(prefix+"allowOut", fmt.Sprintf("%q is not supported by this template, only IP addresses and CIDR blocks are: its pools have no egress by name", e.Names[0]))
	case len(e.Rules) > 0 && !t.ByName:
		return unsupportedField(prefix+"rules", "this network rule is not supported by this template: its pools have no egress by name")
	case len(e.Names) > 0 && !e.DeniesAll():
		return refuse(http.StatusBadRequest, allTraffic)
	}
	return nil
}

// UpdateSandboxNetwork is PUT /sandboxes/{sandboxID}/network: the rules become
// those of the body; what it leaves out is cleared.
func (s *Server) UpdateSandboxNetwork(w http.ResponseWriter, r *http.Request, _ string) {
	s.done(w, r, s.updateNetwork(r))
}

func (s *Server) updateNetwork(r *http.Request) error {
	var body api.SandboxNetworkUpdate
	if err := decode(r, &body); err != nil {
		return err
	}
	rules := api.SandboxNetwork{
		AllowOut: body.AllowOut, DenyOut: body.DenyOut, DnsServers: body.DnsServers, EgressProxy: body.EgressProxy,
		HttpsPorts: body.HttpsPorts, MaskRequestHost: body.MaskRequestHost, Rules: body.Rules,
	}
	if err := supportedNetwork(rules, ""); err != nil {
		return err
	}
	egress, err := egressOf(body.AllowInternetAccess, rules, "")
	if err != nil {
		return err
	}
	sandbox, template, err := s.find(r)
	if err != nil {
		return err
	}
	if err := egress.suits(template, ""); err != nil {
		return err
	}
	// A value that the sandbox has already needs no change.
	if body.AllowPublicTraffic != nil && *body.AllowPublicTraffic == sandbox.Private {
		return refuse(http.StatusBadRequest, "allowPublicTraffic: cannot be changed after the sandbox was created")
	}
	// An ID that was not generated may be used again, by a sandbox that would get these
	// rules.
	if egress.Restricted() && !sandboxid.Generated(sandbox.ID) {
		return refuse(http.StatusBadRequest, "denyOut, allow_internet_access: a sandbox that a first request made can have no network rules")
	}
	return s.o.Sandboxes.SetEgress(r.Context(), sandbox.Namespace, sandbox.ID, egress)
}

// destinations reads addresses, blocks of them, and names of hosts.
func destinations(list *[]string, field string) (blocks []netip.Prefix, hosts []string, err error) {
	if list == nil {
		return nil, nil, nil
	}
	if len(*list) > maxRules {
		return nil, nil, refuse(http.StatusBadRequest, fmt.Sprintf("%s: must not have more than %d entries", field, maxRules))
	}
	blocks = make([]netip.Prefix, 0, len(*list))
	for _, text := range *list {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			var addr netip.Addr
			addr, err = netip.ParseAddr(text)
			if p = netip.PrefixFrom(addr, addr.BitLen()); addr.Zone() != "" {
				p = netip.Prefix{} // no rule can tell zones apart
			}
		}
		if err == nil && p.IsValid() && !p.Addr().Is4In6() {
			blocks = append(blocks, p.Masked())
			continue
		}
		if _, err := names.NewPolicy(names.Rules{DenyAll: true, AllowNames: []string{text}}); err != nil {
			return nil, nil, unsupportedField(field, fmt.Sprintf("%q is not supported, only IP addresses, CIDR blocks and names of hosts are", text))
		}
		hosts = append(hosts, text)
	}
	return blocks, hosts, nil
}

// rulesOf reads what requests to hosts get, as E2B's SDKs write it:
//
//	{"api.example.com": [{"transform": {"headers": {"Authorization": "Bearer ${e2b.secrets.KEY}"}}}]}
//
// Its errors show no header's value.
func rulesOf(given *map[string]any, field string) (map[string]map[string]string, error) {
	if given == nil || len(*given) == 0 {
		return nil, nil
	}
	rules := map[string]map[string]string{}
	for host, list := range *given {
		wrong := func(why string) error {
			return refuse(http.StatusBadRequest, fmt.Sprintf("%s: %q: %s", field, host, why))
		}
		all, ok := list.([]any)
		if !ok || len(all) > 1 {
			return nil, wrong("must be a list of at most one rule")
		}
		rules[host] = map[string]string{}
		for _, one := range all {
			rule, ok := one.(map[string]any)
			if !ok {
				return nil, wrong("a rule must be an object")
			}
			transform, ok := only(rule, "transform")
			if !ok {
				return nil, wrong("a rule has a transform, and nothing else")
			}
			headers, ok := only(transform, "headers")
			if !ok {
				return nil, wrong("a transform has headers, and nothing else")
			}
			for name, value := range headers {
				text, ok := value.(string)
				if !ok {
					return nil, wrong(fmt.Sprintf("header %q: must be text", name))
				}
				rules[host][name] = text
			}
		}
	}
	if _, err := names.NewPolicy(names.Rules{Headers: rules}); err != nil {
		return nil, refuse(http.StatusBadRequest, field+": "+err.Error())
	}
	return rules, nil
}

// only returns an object's one field; absent or null is an empty one.
func only(object map[string]any, field string) (map[string]any, bool) {
	for name := range object {
		if name != field {
			return nil, false
		}
	}
	if object[field] == nil {
		return nil, true
	}
	inner, ok := object[field].(map[string]any)
	return inner, ok
}

// rulesView is rulesOf backwards.
func rulesView(rules map[string]map[string]string) *map[string]any {
	if len(rules) == 0 {
		return nil
	}
	all := map[string]any{}
	for host, headers := range rules {
		all[host] = []any{map[string]any{"transform": map[string]any{"headers": headers}}}
	}
	return &all
}
