package egress

import (
	"fmt"
	"net/netip"
)

// Closed are the address ranges that no sandbox may connect to, whatever its rules.
type Closed []netip.Prefix

// always are the ranges that are closed in every cluster: link-local addresses, where
// clouds have their metadata services, and the IPv6 address of AWS's.
var always = Closed{
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("fd00:ec2::254/128"),
}

// ClosedRanges returns the ranges of always and the given ones, which an operator names: those of
// the API server, of nodes, of other services of the cluster.
func ClosedRanges(ranges []string) (Closed, error) {
	closed := append(Closed{}, always...)
	for _, text := range ranges {
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil || p.Addr().Is4In6():
			return nil, fmt.Errorf("%q is no CIDR block", text)
		case p != p.Masked():
			return nil, fmt.Errorf("%s has bits beyond its length: did you mean %s?", text, p.Masked())
		case p.Bits() == 0:
			return nil, fmt.Errorf("%s would close everything", text)
		}
		closed = append(closed, p)
	}
	return closed, nil
}

// Covers reports whether all of p is closed.
func (c Closed) Covers(p netip.Prefix) bool {
	for _, one := range c {
		if one.Bits() <= p.Bits() && one.Contains(p.Addr()) {
			return true
		}
	}
	return false
}

// inside are the closed ranges within p, and not all of it.
func (c Closed) inside(p netip.Prefix) (in []string) {
	for _, one := range c {
		if p.Bits() < one.Bits() && p.Contains(one.Addr()) {
			in = append(in, one.String())
		}
	}
	return in
}
