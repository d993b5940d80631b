package extproc

import "github.com/sandlane/sandlane/api/v1alpha1"

// generatedLen is the length of a generated ID: i and 20 of a-z and 0-9.
const generatedLen = 21

// parseIDPort reads an ID and a port as a client wrote them.
func parseIDPort(id, port string) (string, uint16, error) {
	if !validID(id) {
		return "", 0, errID
	}
	p, ok := parsePort(port)
	if !ok {
		return "", 0, errPort
	}
	return canonicalID(id), p, nil
}

// validID reports whether s matches v1alpha1.IDPattern.
func validID(s string) bool {
	if s == "" || len(s) > 57 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if !isAlnum(s[i]) && s[i] != '-' {
			return false
		}
	}
	return true
}

// canonicalID cuts what follows the dash off an ID in the generated form
// (E2B's legacy client ID) and returns any other ID as it is.
func canonicalID(id string) string {
	if len(id) > generatedLen && id[generatedLen] == '-' && isGenerated(id[:generatedLen]) {
		return id[:generatedLen]
	}
	return id
}

// isGenerated reports whether a canonical ID has the form that the gateway
// makes. Such an ID cannot be created by naming it.
func isGenerated(id string) bool { return v1alpha1.GeneratedID(id) }

func isAlnum(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// parsePort reads a decimal port from 1 to 65535 without leading zeros.
func parsePort(s string) (uint16, bool) {
	if s == "" || len(s) > 5 || s[0] == '0' {
		return 0, false
	}
	n := 0
	for i := range len(s) {
		if !isDigit(s[i]) {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return uint16(n), n <= 65535
}

// validDNSLabel reports whether s is a lower-case DNS label, the form of
// namespaces and of the pool names that the CRDs allow.
func validDNSLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if !isAlnum(s[i]) && s[i] != '-' {
			return false
		}
	}
	return true
}
