package restapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandlane/sandlane/gateway/restapi/api"
)

// filter selects the sandboxes of a list. A zero field selects all.
type filter struct {
	metadata     map[string]string
	startedAfter *time.Time
	from         []origin           // nil leaves all
	snapshot     string             // leaves also those that began with it
	states       []api.SandboxState // nil leaves all
}

// newFilter reads the metadata query as it stands in the parameter, which was
// unescaped once already.
func newFilter(metadata *string) (*filter, error) {
	f := &filter{}
	if metadata == nil || *metadata == "" {
		return f, nil
	}
	var ok bool
	if f.metadata, ok = parseMetadata(*metadata); !ok {
		return nil, refuse(http.StatusBadRequest, "metadata: must have the form key=value&key=value, with keys and values of UTF-8, escaped")
	}
	return f, nil
}

// parseMetadata undoes what SDKs do: they escape keys and values, join them, and
// escape the whole again (the third time is the URL's).
func parseMetadata(query string) (map[string]string, bool) {
	query, err := url.QueryUnescape(query)
	if err != nil {
		return nil, false
	}
	pairs := map[string]string{}
	for pair := range strings.SplitSeq(query, "&") {
		key, value, found := strings.Cut(pair, "=")
		if !found || strings.Contains(value, "=") {
			return nil, false
		}
		if key, err = url.QueryUnescape(key); err != nil {
			return nil, false
		}
		if value, err = url.QueryUnescape(value); err != nil {
			return nil, false
		}
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return nil, false // no sandbox has such metadata
		}
		pairs[key] = value
	}
	return pairs, true
}

func (f *filter) matches(sandbox Sandbox) bool {
	for key, want := range f.metadata {
		if got, found := sandbox.Metadata[key]; !found || got != want {
			return false
		}
	}
	if f.startedAfter != nil && sandbox.StartedAt.Before(f.startedAfter.Truncate(time.Microsecond)) {
		return false
	}
	if f.states != nil && !slices.Contains(f.states, stateOf(sandbox)) {
		return false
	}
	return f.from == nil || f.snapshot != "" && f.snapshot == sandbox.Snapshot || slices.Contains(f.from, originOf(sandbox.SandboxEnv, sandbox.Pool))
}
