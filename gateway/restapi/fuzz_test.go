package restapi

import (
	"maps"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/sandlane/sandlane/gateway/restapi/api"
)

// escaped is a metadata filter as the SDKs make it, but for the URL's own escaping.
func escaped(pairs map[string]string) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		all = append(all, url.QueryEscape(key)+"="+url.QueryEscape(pairs[key]))
	}
	return url.QueryEscape(strings.Join(all, "&"))
}

// Whatever stands in a metadata filter: it is refused, or it means pairs which,
// sent as the SDKs do, mean the same again. It matches a sandbox that has them all and
// none that lacks one.
func FuzzMetadataFilter(f *testing.F) {
	for _, seed := range []string{"", "a=b", "a%3Db%252520c%26k%25252F1%3Dv", "a=b=c", "=", "a", "%", "a%zz=1", "a=1&a=2", "&", "a=%00", "\xff=1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		pairs, ok := parseMetadata(query)
		if !ok {
			return
		}
		again, ok := parseMetadata(escaped(pairs))
		if !ok || !maps.Equal(pairs, again) {
			t.Errorf("%q means %v, sent again %v", query, pairs, again)
		}
		one := &filter{metadata: pairs}
		if !one.matches(Sandbox{Metadata: pairs}) {
			t.Errorf("%q does not match %v", query, pairs)
		}
		for key, value := range pairs {
			less := maps.Clone(pairs)
			delete(less, key)
			if one.matches(Sandbox{Metadata: less}) {
				t.Errorf("%q matches %v", query, less)
			}
			less[key] = value + "x"
			if one.matches(Sandbox{Metadata: less}) {
				t.Errorf("%q matches %v", query, less)
			}
		}
	})
}

// A list with any query is a list of the caller's sandboxes or a refusal that
// says so; never a failure.
func FuzzListQuery(f *testing.F) {
	for _, seed := range []string{
		"limit=1&order=asc", "metadata=user%3Dx", "state=running,paused", "state=", "startedAfter=2026-01-01T00:00:00Z",
		"limit=0", "limit=1e9", "nextToken=%%", "template=base", "a;b", "state=running&state=gone", "startedAfter=0000-00-00", "limit=%31", "metadata=%25zz",
	} {
		f.Add("/v2/sandboxes", seed)
		f.Add("/sandboxes", seed)
	}
	f.Add("/sandboxes/metrics", "sandbox_ids="+idA+",x")
	f.Add("/sandboxes/metrics", "sandbox_ids=,")
	f.Add("/sandboxes/"+idA+"/metrics", "start=-1&end=9223372036854775808")
	f.Add("/v2/sandboxes/"+idA+"/logs", "cursor=99999999999999999&direction=backward&level=warn&search=%ff")
	f.Fuzz(func(t *testing.T, path, query string) {
		u := &url.URL{Path: "/" + strings.TrimLeft(path, "/"), RawQuery: query}
		s := newServer(t, newFake(), nil)
		for _, key := range []string{keyA, keyB} {
			r := httptest.NewRequest("GET", "/", nil)
			r.URL = u
			w := askWith(t, s, r, key)
			if w.Code >= 500 && w.Code != 501 {
				t.Errorf("GET %s?%s: %d %s", path, query, w.Code, w.Body)
			}
			if w.Code == 200 && strings.HasSuffix(u.Path, "/sandboxes") {
				page := read[[]api.ListedSandbox](t, w)
				if key == keyB && len(page) > 0 || len(page) > 1 {
					t.Errorf("GET %s?%s lists %v", path, query, ids(page))
				}
			}
		}
	})
}
