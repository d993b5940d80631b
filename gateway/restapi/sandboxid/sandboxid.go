// Package sandboxid makes the IDs of the REST API's sandboxes and builds, and reads those
// that clients name.
package sandboxid

import (
	"crypto/rand"
	"regexp"
	"strings"
)

// pattern is the form of all IDs (design 5). Those of the generated form are
// made here and nowhere else; others come from first requests.
var (
	pattern   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,55}[a-z0-9])?$`)
	generated = regexp.MustCompile(`^i[a-z0-9]{20}(-|$)`)
)

// New makes an ID of the generated form with 100 random bits.
func New() string { return "i" + strings.ToLower(rand.Text()[:20]) }

// Short returns the ID that a client names; false if it is none. What follows
// the dash of a generated ID is the client ID that old SDKs append. Package
// extproc reads IDs in the same way.
func Short(s string) (string, bool) {
	if !pattern.MatchString(s) {
		return "", false
	}
	if generated.MatchString(s) {
		return s[:21], true
	}
	return s, true
}

// Valid reports whether s has the form of an ID.
func Valid(s string) bool { return pattern.MatchString(s) }

// Generated reports whether s has the form of those that New makes.
func Generated(s string) bool { return generated.MatchString(s) }
