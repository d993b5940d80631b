package restapi

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/api"
	"github.com/sandlane/sandlane/gateway/restapi/sandboxid"
)

// fill gives team a n sandboxes, many of which start at the same time.
func fill(f *fake, n int) {
	clear(f.sandboxes)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range n {
		sandbox := Sandbox{
			ID: fmt.Sprintf("s%03d", i), Namespace: "a", Pool: "base", StartedAt: at.Add(time.Duration(i/7) * time.Second),
			Metadata: map[string]string{"third": fmt.Sprint(i % 3)},
		}
		f.sandboxes[sandbox.ID] = sandbox
	}
}

func ids(page []api.ListedSandbox) (all []string) {
	for _, one := range page {
		all = append(all, one.SandboxID)
	}
	return all
}

// Page by page comes what one list has: in order, all, none twice, with the same
// total on every page and no token on the last.
func TestPagesAreTheList(t *testing.T) {
	f := newFake()
	fill(f, 95)
	s := newServer(t, f, nil)
	for _, c := range []struct {
		query string
		want  func(a, b Sandbox) int
	}{
		{"", func(a, b Sandbox) int { return compare(a.StartedAt, a.ID, b.StartedAt, b.ID, false) }},
		{"&order=desc", func(a, b Sandbox) int { return compare(a.StartedAt, a.ID, b.StartedAt, b.ID, false) }},
		{"&order=asc", func(a, b Sandbox) int { return compare(a.StartedAt, a.ID, b.StartedAt, b.ID, true) }},
	} {
		sorted := slices.SortedFunc(maps.Values(f.sandboxes), c.want)
		if c.query != "&order=asc" && (sorted[0].ID != "s091" || sorted[4].ID != "s084") {
			t.Fatalf("not the newest first, then by ID: %v", sorted[:5])
		}
		for _, limit := range []int{1, 7, 10, 94, 95, 96, 100} {
			var got []string
			token := ""
			for pages := 0; ; pages++ {
				if pages > 95 {
					t.Fatalf("limit %d%s: pages do not end", limit, c.query)
				}
				w := ask(t, s, "GET", fmt.Sprintf("/v2/sandboxes?limit=%d%s&nextToken=%s", limit, c.query, url.QueryEscape(token)), keyA, "")
				page := ids(read[[]api.ListedSandbox](t, w))
				if len(page) > limit || len(page) == 0 || w.Header().Get("X-Total-Running") != "95" {
					t.Fatalf("limit %d%s: a page of %d, total %s", limit, c.query, len(page), w.Header().Get("X-Total-Running"))
				}
				got = append(got, page...)
				if token = w.Header().Get("X-Next-Token"); token == "" {
					break
				}
			}
			want := []string{}
			for _, one := range sorted {
				want = append(want, one.ID)
			}
			if !slices.Equal(got, want) {
				t.Errorf("limit %d%s: got %v, want %v", limit, c.query, got, want)
			}
		}
	}
	if got := ids(read[[]api.ListedSandbox](t, ask(t, s, "GET", "/sandboxes", keyA, ""))); len(got) != 95 || got[0] != "s091" {
		t.Errorf("the old list has %d, first %v", len(got), got[0])
	}
}

// The list of old clients has no paused sandboxes, with and without a filter.
func TestOldListHasNoPausedOnes(t *testing.T) {
	f := newFake()
	fill(f, 2)
	paused := f.sandboxes["s000"]
	paused.Paused = true
	f.sandboxes["s000"] = paused
	s := newServer(t, f, nil)
	for path, want := range map[string][]string{
		"/sandboxes": {"s001"}, "/sandboxes?metadata=third%3D0": nil, "/sandboxes?metadata=third%3D1": {"s001"},
		"/v2/sandboxes": {"s000", "s001"},
	} {
		if got := ids(read[[]api.ListedSandbox](t, ask(t, s, "GET", path, keyA, ""))); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

// Those of one start are in the order of their IDs, and the other way round in
// ascending order, as E2B's cursors go on.
func TestTies(t *testing.T) {
	f := newFake()
	clear(f.sandboxes)
	at := time.Date(2026, 1, 1, 0, 0, 0, 123_456_000, time.UTC)
	for id, started := range map[string]time.Time{"c": at, "a": at, "b": at, "old": at.Add(-time.Microsecond), "new": at.Add(time.Microsecond)} {
		f.sandboxes[id] = Sandbox{ID: id, Namespace: "a", Pool: "base", StartedAt: started}
	}
	s := newServer(t, f, nil)
	for query, want := range map[string][]string{
		"":           {"new", "a", "b", "c", "old"},
		"&order=asc": {"old", "c", "b", "a", "new"},
	} {
		var got []string
		for token := ""; ; {
			w := ask(t, s, "GET", "/v2/sandboxes?limit=2"+query+"&nextToken="+url.QueryEscape(token), keyA, "")
			got = append(got, ids(read[[]api.ListedSandbox](t, w))...)
			if token = w.Header().Get("X-Next-Token"); token == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", query, got, want)
		}
	}
}

// A bound counts to the microsecond, as starts do: a client's own clock is finer, and
// the start that a sandbox shows finds the sandbox.
func TestStartedAfter(t *testing.T) {
	f := newFake()
	clear(f.sandboxes)
	at := time.Date(2026, 1, 1, 0, 0, 0, 123_456_000, time.UTC)
	f.sandboxes["x"] = Sandbox{ID: "x", Namespace: "a", Pool: "base", StartedAt: at}
	s := newServer(t, f, nil)
	for bound, want := range map[time.Time]int{
		at.Add(-time.Second): 1, at: 1, at.Add(999 * time.Nanosecond): 1, at.Add(time.Microsecond): 0, at.Add(time.Second): 0,
	} {
		w := ask(t, s, "GET", "/v2/sandboxes?startedAfter="+url.QueryEscape(bound.Format(time.RFC3339Nano)), keyA, "")
		page := read[[]api.ListedSandbox](t, w)
		if len(page) != want || want > 0 && !page[0].StartedAt.Equal(at) {
			t.Errorf("started after %v: %+v, want %d", bound, page, want)
		}
	}
}

// Later pages ask for no newer list than the first one was; the last page in ascending
// order, where the newest are, for the list as it is now.
func TestPagesOfOneList(t *testing.T) {
	for query, want := range map[string][]string{
		"":           {"", "17", "17", "17"},
		"&order=asc": {"", "17", "17", "17", ""},
	} {
		f := newFake()
		fill(f, 35)
		f.version = "17"
		s := newServer(t, f, nil)
		total, token := 0, ""
		for {
			w := ask(t, s, "GET", "/v2/sandboxes?limit=10"+query+"&nextToken="+url.QueryEscape(token), keyA, "")
			page := read[[]api.ListedSandbox](t, w)
			if total += len(page); total == 10 {
				f.sandboxes["new"] = Sandbox{ID: "new", Namespace: "a", StartedAt: time.Now()}
				f.madeSince = map[string]bool{"new": true}
			}
			if token = w.Header().Get("X-Next-Token"); token == "" {
				if last := page[len(page)-1].SandboxID; (last == "new") != (query != "") {
					t.Errorf("%q: the last is %s", query, last)
				}
				break
			}
		}
		if !slices.Equal(f.lists, want) {
			t.Errorf("%q: lists of %q were asked for, want %q", query, f.lists, want)
		}
	}
}

// The number of running sandboxes is told only where they were asked for.
func TestTotalRunning(t *testing.T) {
	s := newServer(t, newFake(), nil)
	for query, want := range map[string]string{"": "1", "?state=running": "1", "?state=running,paused": "1", "?state=paused": ""} {
		if got := ask(t, s, "GET", "/v2/sandboxes"+query, keyA, "").Header().Values("X-Total-Running"); strings.Join(got, ",") != want {
			t.Errorf("%q: %q, want %q", query, got, want)
		}
	}
}

// A token works although its sandbox is gone, and only for its order.
func TestTokens(t *testing.T) {
	f := newFake()
	fill(f, 30)
	s := newServer(t, f, nil)
	w := ask(t, s, "GET", "/v2/sandboxes?limit=10", keyA, "")
	first, token := ids(read[[]api.ListedSandbox](t, w)), w.Header().Get("X-Next-Token")
	delete(f.sandboxes, first[9])
	f.sandboxes["new"] = Sandbox{ID: "new", Namespace: "a", StartedAt: time.Now()}
	second := ids(read[[]api.ListedSandbox](t, ask(t, s, "GET", "/v2/sandboxes?nextToken="+token, keyA, "")))
	if len(second) != 20 || slices.ContainsFunc(second, func(id string) bool { return id == "new" || slices.Contains(first, id) }) {
		t.Errorf("after %v came %v", first, second)
	}
	if w := ask(t, s, "GET", "/v2/sandboxes?order=asc&nextToken="+token, keyA, ""); w.Code != 400 {
		t.Errorf("a token of the other order: %d", w.Code)
	}
	text, _ := base64.URLEncoding.DecodeString(token)
	if !strings.HasSuffix(string(text), "Z__"+first[9]) {
		t.Errorf("the token says %s", text)
	}
}

// A filter of text that is not UTF-8 finds nothing, and its sender should know.
func TestMetadataFilterMustBeUTF8(t *testing.T) {
	s := newServer(t, newFake(), nil)
	for _, query := range []string{"a%3D%25FF", "%25C3%2528%3Da", "a%3D%25ED%25A0%2580", "a%3D%FF"} {
		for _, path := range []string{"/v2/sandboxes", "/sandboxes"} {
			if w := ask(t, s, "GET", path+"?metadata="+query, keyA, ""); w.Code != 400 {
				t.Errorf("%s?metadata=%s: %d %s", path, query, w.Code, w.Body)
			}
		}
	}
}

// escape does to metadata what the SDKs do, but for the last time, the URL's.
func escape(metadata map[string]string) string {
	values := url.Values{}
	for k, v := range metadata {
		values.Set(url.QueryEscape(k), url.QueryEscape(v))
	}
	return values.Encode()
}

// The measured request of the contract, and filters of several pairs.
func TestMetadataFilter(t *testing.T) {
	f := newFake()
	fill(f, 9)
	f.sandboxes["odd"] = Sandbox{ID: "odd", Namespace: "a", Metadata: map[string]string{"a": "b c&d", "k/1": "v", "more": "x"}}
	s := newServer(t, f, nil)
	for query, want := range map[string]int{
		"a%3Db%252520c%252526d%26k%25252F1%3Dv": 1,
		"a%3Db%252520c%252526d%26k%25252F1%3Dw": 0,
		"third%3D1":                             3,
		"third=1":                               3,
		"third%3D1%26nosuch%3D":                 0,
		url.QueryEscape(escape(map[string]string{"a": "b c&d"})): 1,
		"": 10,
	} {
		for _, path := range []string{"/v2/sandboxes", "/sandboxes"} {
			w := ask(t, s, "GET", path+"?metadata="+query, keyA, "")
			if got := len(read[[]api.ListedSandbox](t, w)); got != want {
				t.Errorf("%s?metadata=%s: %d sandboxes, want %d", path, query, got, want)
			}
			if total := w.Header().Get("X-Total-Running"); path != "/sandboxes" && total != fmt.Sprint(want) {
				t.Errorf("metadata=%s: total %s, want %d", query, total, want)
			}
		}
	}
}

func FuzzMetadataRoundTrip(f *testing.F) {
	f.Add("a", "b c&d", "k/1", "v")
	f.Add("+", "%", "=", "&")
	f.Add("", "", "x", "ü\x00")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		want := map[string]string{k1: v1, k2: v2}
		got, ok := parseMetadata(escape(want))
		if !ok || !maps.Equal(got, want) {
			t.Errorf("%q became %q, %v", want, got, ok)
		}
	})
}

// Whatever a client sends as a token, it is refused or is one that is given.
func FuzzCursor(f *testing.F) {
	f.Add(cursor{time.Unix(1e9, 5), idA, "17"}.token(true), true)
	f.Add(cursor{time.Unix(0, 0), "x-1", ""}.token(false), false)
	f.Add("", false)
	f.Add(base64.URLEncoding.EncodeToString([]byte("2026-01-01T00:00:00Z__a__v0")), false)
	f.Add(base64.URLEncoding.EncodeToString([]byte("2026-01-01T00:00:00Z__UPPER")), false)
	f.Fuzz(func(t *testing.T, token string, ascending bool) {
		c, err := parseCursor(token, ascending)
		if err != nil {
			return
		}
		again, err := parseCursor(c.token(ascending), ascending)
		if err != nil || again.id != c.id || !again.started.Equal(c.started) || again.version != c.version {
			t.Errorf("%q is %+v, which is %+v, %v", token, c, again, err)
		}
		if !sandboxid.Valid(c.id) {
			t.Errorf("%q names %q", token, c.id)
		}
	})
}

// position agrees with looking at one after the other.
func TestPosition(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		ascending := random.IntN(2) == 0
		all := make([]Sandbox, random.IntN(20))
		for i := range all {
			all[i] = Sandbox{ID: fmt.Sprint(random.IntN(9)), StartedAt: time.Unix(random.Int64N(5), 0)}
		}
		sortSandboxes(all, ascending)
		c := &cursor{id: fmt.Sprint(random.IntN(9)), started: time.Unix(random.Int64N(5), 0)}
		want := 0
		for _, one := range all {
			if compare(one.StartedAt, one.ID, c.started, c.id, ascending) <= 0 {
				want++
			}
		}
		if got := c.position(all, ascending); got != want {
			t.Fatalf("%v after %v: %d, want %d", all, c, got, want)
		}
	}
}
