package restapi

import (
	"crypto/rand"
	"regexp"
	"strings"
)

// idPattern is the form of all IDs (design 5). Those of the generated form are
// made here and nowhere else; others come from first requests.
var (
	idPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,55}[a-z0-9])?$`)
	generated = regexp.MustCompile(`^i[a-z0-9]{20}(-|$)`)
)

// NewID makes an ID of the generated form with 100 random bits.
func NewID() string { return "i" + strings.ToLower(rand.Text()[:20]) }

// shortID returns the ID that a client names; false if it is none. What follows
// the dash of a generated ID is the client ID that old SDKs append. Package
// extproc reads IDs in the same way.
func shortID(s string) (string, bool) {
	if !idPattern.MatchString(s) {
		return "", false
	}
	if generated.MatchString(s) {
		return s[:21], true
	}
	return s, true
}
