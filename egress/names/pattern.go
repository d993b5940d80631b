package names

import (
	"fmt"
	"net/netip"
	"strings"
)

// maxName is the longest name that DNS can ask for.
const maxName = 253

// Host returns a host's name as policies compare it: in lower case, without the dot at its
// end. It refuses what is no name of a host, IP addresses too.
func Host(text string) (string, error) {
	name := strings.ToLower(strings.TrimSuffix(text, "."))
	if len(name) > maxName {
		return "", fmt.Errorf("a host's name has at most %d bytes", maxName)
	}
	for label := range strings.SplitSeq(name, ".") {
		if !isLabel(label) {
			return "", fmt.Errorf("%q is no host's name", text)
		}
	}
	// Programs read "10.0.0.1", and also "167772161" and "0x7f.1", as an address.
	if last := name[strings.LastIndexByte(name, '.')+1:]; isNumber(last) {
		return "", fmt.Errorf("%q is an address, not a host's name", text)
	}
	return name, nil
}

func isLabel(label string) bool {
	if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	for i := range len(label) {
		c := label[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// isNumber reports whether a name that ends with the label is an address to inet_aton and
// to browsers.
func isNumber(label string) bool {
	digits, hex := strings.CutPrefix(label, "0x")
	return strings.Trim(digits, "0123456789") == "" || hex && strings.Trim(digits, "0123456789abcdef") == ""
}

// pattern reads a name, a wildcard such as *.example.com, or *.
func pattern(text string) (string, error) {
	if text == "*" {
		return text, nil
	}
	name, wild := strings.CutPrefix(text, "*.")
	name, err := Host(name)
	if err != nil {
		return "", fmt.Errorf("%q is neither a host's name nor a wildcard such as *.example.com", text)
	}
	if wild {
		name = "*." + name
	}
	return name, nil
}

// match returns the value of the pattern that is closest to the host: its name, or the
// longest wildcard above it. A wildcard does not stand for the name below which it begins.
func match[V any](patterns map[string]V, host string) (V, bool) {
	if v, found := patterns[host]; found {
		return v, true
	}
	for rest := host; ; {
		dot := strings.IndexByte(rest, '.')
		if dot < 0 {
			v, found := patterns["*"]
			return v, found
		}
		rest = rest[dot+1:]
		if v, found := patterns["*."+rest]; found {
			return v, true
		}
	}
}

// contains reports whether one of the blocks has the address.
func contains(blocks []netip.Prefix, addr netip.Addr) bool {
	for _, block := range blocks {
		if block.Contains(addr) {
			return true
		}
	}
	return false
}
