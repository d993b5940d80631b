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
)

// cursor is the last sandbox of a page, or the last of what else is listed, and the version of
// the list it was in. It need not exist any more: the next page begins after where it stood.
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

var (
	versionPattern = regexp.MustCompile(`^[1-9][0-9]{0,18}$`)
	// listedPattern is the form of what a list is of: sandboxes, snapshots, templates, builds.
	listedPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
)

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
	if !found || err != nil || !listedPattern.MatchString(id) || versioned && !versionPattern.MatchString(version) {
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

// newestPage returns a page of what has times and IDs, the newest first, and the token of the next
// page; empty: there is none. It sorts all.
func newestPage[T any](all []T, key func(T) (time.Time, string), token *string, limit *int) (page []T, next string, err error) {
	slices.SortFunc(all, func(a, b T) int {
		aAt, aID := key(a)
		bAt, bID := key(b)
		return compare(aAt, aID, bAt, bID, false)
	})
	if token != nil && *token != "" {
		after, err := parseCursor(*token, false)
		if err != nil {
			return nil, "", err
		}
		all = slices.DeleteFunc(all, func(one T) bool {
			at, id := key(one)
			return compare(at, id, after.started, after.id, false) <= 0
		})
	}
	n := defaultPage
	if limit != nil {
		n = *limit
	}
	if len(all) <= n {
		return all, "", nil
	}
	at, id := key(all[n-1])
	return all[:n], cursor{started: at, id: id}.token(false), nil
}
