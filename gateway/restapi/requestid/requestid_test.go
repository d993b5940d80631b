package requestid

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// An error has the client's ID, or a new one if that is empty, long or not printable; the
// handler sees the same. Any other answer has none.
func TestHandler(t *testing.T) {
	for name, tc := range map[string]struct {
		id     string
		status int
		kept   bool
	}{
		"none":                {"", 404, false},
		"the client's":        {"b3d0-7:/+=\"~", 404, true},
		"an error of ours":    {"mine", 500, true},
		"the longest":         {strings.Repeat("a", longest), 400, true},
		"too long":            {strings.Repeat("a", longest+1), 400, false},
		"a space":             {"a b", 400, false},
		"a tab":               {"a\tb", 400, false},
		"a colour":            {"a\x1b[31m", 400, false},
		"not ASCII":           {"é", 400, false},
		"no error":            {"mine", 200, true},
		"no error, no ID":     {"", 303, false},
		"of a silent handler": {"mine", 0, true},
	} {
		var seen string
		h := Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if seen = Of(r); tc.status != 0 {
				w.WriteHeader(tc.status)
			}
		}))
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if tc.id != "" {
			r.Header.Set("X-Request-ID", tc.id)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if !valid(seen) || (seen == tc.id) != tc.kept {
			t.Errorf("%s: the handler saw %q", name, seen)
		}
		want := ""
		if tc.status >= 400 {
			want = seen
		}
		if got := w.Header().Get("X-Request-ID"); got != want {
			t.Errorf("%s: the answer has %q, want %q", name, got, want)
		}
	}
}
