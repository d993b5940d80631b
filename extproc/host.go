package extproc

import (
	"net/netip"
	"strings"
)

type hostKind uint8

const (
	hostShared  hostKind = iota + 1 // localhost, an IP address, sandbox.<domain>
	hostAPI                         // api.<domain>
	hostSandbox                     // <port>-<ID>.<domain>
)

// maxHost is the longest host name that DNS allows, in bytes.
const maxHost = 253

// classifyHost says which kind of host an :authority names. For hostSandbox it
// also returns the first label.
func classifyHost(authority string) (kind hostKind, label string, err error) {
	if strings.HasPrefix(authority, "[") {
		if !validIPv6Authority(authority) {
			return 0, "", errHost
		}
		return hostShared, "", nil
	}
	host, port, found := strings.Cut(authority, ":")
	if found {
		if _, ok := parsePort(port); !ok {
			return 0, "", errHost
		}
	}
	host = strings.TrimSuffix(host, ".") // of a name that is complete
	if isIPv4(host) || strings.EqualFold(host, "localhost") {
		return hostShared, "", nil
	}
	label, domain, found := strings.Cut(host, ".")
	if !found || len(host) > maxHost || !validLabels(label) || !validLabels(domain) {
		return 0, "", errHost
	}
	switch {
	case strings.EqualFold(label, "sandbox"):
		return hostShared, "", nil
	case strings.EqualFold(label, "api"):
		return hostAPI, "", nil
	default:
		return hostSandbox, label, nil
	}
}

// parseLabel reads <port>-<ID> in any case; the ID is all that follows the first dash.
func parseLabel(label string) (string, uint16, error) {
	port, id, found := strings.Cut(strings.ToLower(label), "-")
	if !found {
		return "", 0, errHost
	}
	return parseIDPort(id, port)
}

// validIPv6Authority reports whether s is [address] or [address]:port.
func validIPv6Authority(s string) bool {
	end := strings.IndexByte(s, ']')
	if end < 0 {
		return false
	}
	addr, err := netip.ParseAddr(s[1:end])
	if err != nil || !addr.Is6() || addr.Zone() != "" {
		return false
	}
	rest := s[end+1:]
	if rest == "" {
		return true
	}
	_, ok := parsePort(rest[1:])
	return rest[0] == ':' && ok
}

// isIPv4 looks at the last byte first: a failed ParseAddr allocates.
func isIPv4(s string) bool {
	if s == "" || s[len(s)-1] < '0' || s[len(s)-1] > '9' {
		return false
	}
	addr, err := netip.ParseAddr(s)
	return err == nil && addr.Is4()
}

// validLabels reports whether s is one or more DNS labels, in any case and
// without a final dot.
func validLabels(s string) bool {
	n := 0 // length of the label so far
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
			if n++; n > 63 {
				return false
			}
		case c == '.' && n > 0:
			n = 0
		default:
			return false
		}
	}
	return n > 0
}
