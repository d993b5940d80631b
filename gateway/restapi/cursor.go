package restapi

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/sandboxid"
)

// cursor is the last sandbox of a page, and the version of the list it was in. The
// sandbox need not exist any more: the next page begins after where it stood.
// Sandboxes that start meanwhile may be missed or be on a later page, as their order
// says; none is listed twice.
type cursor struct {
	started time.Time
	id      string
	version string // empty where the list had none
}

// The text of a cursor is E2B's, "<start>__<ID>" and "__asc" in ascending order, and
// behind it the version.
const (
	ascendingMark = "__asc"
	versionMark   = "__v"
)

var versionPattern = regexp.MustCompile(`^[1-9][0-9]{0,18}$`)

func (c cursor) token(ascending bool) string {
	text := c.started.UTC().Format(time.RFC3339Nano) + "__" + c.id
	if ascending {
		text += ascendingMark
	}
	if c.version != "" {
		text += versionMark + c.version
	}
	return base64.URLEncoding.EncodeToString([]byte(text))
}

// parseCursor reads a cursor of a list in the same order.
func parseCursor(token string, ascending bool) (*cursor, error) {
	malformed := refuse(http.StatusBadRequest, "nextToken: is not one that this list has given")
	text, err := base64.URLEncoding.DecodeString(token)
	if err != nil {
		return nil, malformed
	}
	rest, version, versioned := strings.Cut(string(text), versionMark)
	rest, marked := strings.CutSuffix(rest, ascendingMark)
	at, id, found := strings.Cut(rest, "__")
	started, err := time.Parse(time.RFC3339Nano, at)
	if !found || err != nil || !sandboxid.Valid(id) || versioned && !versionPattern.MatchString(version) {
		return nil, malformed
	}
	if marked != ascending {
		return nil, refuse(http.StatusBadRequest, "nextToken: was given for the other order")
	}
	return &cursor{started: started.Truncate(time.Microsecond), id: id, version: version}, nil
}

// SortNewestFirst sorts by start, the newest first, then by ID.
func SortNewestFirst(all []Sandbox) { sortSandboxes(all, false) }

// sortSandboxes sorts by start, the newest first, then by ID; ascending is the exact
// inverse, as E2B has it: the oldest first, those of one start from the last ID on.
func sortSandboxes(all []Sandbox, ascending bool) {
	slices.SortFunc(all, func(a, b Sandbox) int { return compare(a.StartedAt, a.ID, b.StartedAt, b.ID, ascending) })
}

func compare(aStarted time.Time, aID string, bStarted time.Time, bID string, ascending bool) int {
	order := cmp.Or(bStarted.Compare(aStarted), strings.Compare(aID, bID))
	if ascending {
		return -order
	}
	return order
}

// position is where in a sorted list the page after the cursor begins; without a
// cursor at the start.
func (c *cursor) position(sorted []Sandbox, ascending bool) int {
	if c == nil {
		return 0
	}
	return sort.Search(len(sorted), func(i int) bool {
		return compare(sorted[i].StartedAt, sorted[i].ID, c.started, c.id, ascending) > 0
	})
}
