package restapi

import (
	"fmt"
	"net/http"
	"net/netip"

	"github.com/sandlane/sandlane/gateway/restapi/api"
)

// maxRules bounds the addresses of a list: each is a line in every node's filter.
const maxRules = 200

// Egress says which addresses a sandbox may connect to: those that are not
// denied, and those that are allowed although they are denied. The zero value is
// all of them.
type Egress struct {
	// Allow only matters beside Deny. No prefix has bits beyond its length.
	Allow, Deny []netip.Prefix
	// Asked is what the client wrote.
	Asked AskedEgress
}

// AskedEgress is how a client asked for an Egress, which answers repeat. Nil: it did not.
type AskedEgress struct {
	Internet *bool     `json:"allowInternetAccess,omitempty"`
	AllowOut *[]string `json:"allowOut,omitempty"`
	DenyOut  *[]string `json:"denyOut,omitempty"`
}

// Restricted reports whether there is an address that it denies.
func (e Egress) Restricted() bool { return len(e.Deny) > 0 }

// everything is what "0.0.0.0/0" means in E2B, where there is no IPv6.
var everything = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// egressOf reads the rules of a request whose fields have names with a prefix.
func egressOf(internet *bool, n api.SandboxNetwork, prefix string) (Egress, error) {
	allow, err := prefixes(n.AllowOut, prefix+"allowOut")
	if err != nil {
		return Egress{}, err
	}
	deny, err := prefixes(n.DenyOut, prefix+"denyOut")
	if err != nil {
		return Egress{}, err
	}
	all := is(internet, false)
	for _, p := range deny {
		all = all || p.Bits() == 0
	}
	if all {
		deny = everything
	}
	asked := AskedEgress{Internet: internet, AllowOut: n.AllowOut, DenyOut: n.DenyOut}
	if len(deny) == 0 {
		return Egress{Asked: asked}, nil // what is allowed was never denied
	}
	return Egress{Allow: allow, Deny: deny, Asked: asked}, nil
}

// prefixes reads addresses and blocks of them.
func prefixes(list *[]string, field string) ([]netip.Prefix, error) {
	if list == nil {
		return nil, nil
	}
	if len(*list) > maxRules {
		return nil, refuse(http.StatusBadRequest, fmt.Sprintf("%s: must not have more than %d entries", field, maxRules))
	}
	read := make([]netip.Prefix, 0, len(*list))
	for _, text := range *list {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			var addr netip.Addr
			addr, err = netip.ParseAddr(text)
			if p = netip.PrefixFrom(addr, addr.BitLen()); addr.Zone() != "" {
				p = netip.Prefix{} // no rule can tell zones apart
			}
		}
		if err != nil || !p.IsValid() || p.Addr().Is4In6() {
			return nil, unsupportedField(field, fmt.Sprintf("%q is not supported, only IP addresses and CIDR blocks are", text))
		}
		read = append(read, p.Masked())
	}
	return read, nil
}
