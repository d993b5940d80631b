package extproc

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/routecache"
)

// The cookie of a port opens that port of that sandbox to requests of its own origin, and no
// sandbox sees it.
func TestPortCookie(t *testing.T) {
	const good = "sandlane-port=cookie-a-second-8000"
	none, same := []string{"sec-fetch-site", "none"}, []string{"sec-fetch-site", "same-origin"}
	at := func(authority, cookie string, more ...[]string) []string {
		headers := []string{":authority", authority, ":path", "/", "cookie", cookie}
		for _, m := range more {
			headers = append(headers, m...)
		}
		return headers
	}
	origin := func(o string) []string { return []string{"origin", o} }
	websocket := []string{"upgrade", "websocket"}
	const own = "8000-a.example.com"
	for name, tc := range map[string]struct {
		headers []string
		opens   bool
		left    string
	}{
		"typed":                         {at(own, good, none), true, "none"},
		"of TLS":                        {at(own, "__Host-"+good, none), true, "none"},
		"of its own page":               {at(own, good, same), true, "none"},
		"posted by its own page":        {at(own, good, same, origin("https://"+own)), true, "none"},
		"by origin alone":               {at(own, good, origin("http://"+own)), true, "none"},
		"a WebSocket of its own page":   {at(own, good, websocket, origin("http://"+own)), true, "none"},
		"at a port of its own":          {at(own+":8080", good, origin("https://8000-A.example.com:8080")), true, "none"},
		"beside others":                 {at(own, "a=b; "+good+";c=d", same), true, "a=b; c=d"},
		"beside a wrong one":            {at(own, "sandlane-port=x; x=y; __Host-"+good, same), true, "x=y"},
		"another site":                  {at(own, good, []string{"sec-fetch-site", "cross-site"}), false, ""},
		"another sandbox of the domain": {at(own, good, []string{"sec-fetch-site", "same-site"}), false, ""},
		"another origin":                {at(own, good, origin("http://8000-b.example.com")), false, ""},
		"another port's origin":         {at(own, good, origin("http://"+own+":81")), false, ""},
		"another origin that says none": {at(own, good, none, origin("http://8000-b.example.com")), false, ""},
		"no origin":                     {at(own, good, origin("null")), false, ""},
		"without TLS":                   {at(own, "__Host-"+good, origin("http://"+own)), false, ""},
		"a WebSocket of another page":   {at(own, good, websocket, origin("http://8000-b.example.com")), false, ""},
		"neither header":                {at(own, good), false, ""},
		"two sites":                     {at(own, good, same, same), false, ""},
		"two origins":                   {at(own, good, origin("http://"+own), origin("http://"+own)), false, ""},
		"another port's":                {at(own, "sandlane-port=cookie-a-second-8001", same), false, ""},
		"another sandbox's":             {at(own, "sandlane-port=cookie-b-second-8000", same), false, ""},
		"an earlier sandbox's":          {at(own, "sandlane-port=cookie-a-first-8000", same), false, ""},
		"another name":                  {at(own, "x-sandlane-port=cookie-a-second-8000", same), false, ""},
		"sandboxd's port":               {at("49983-a.example.com", "sandlane-port=cookie-a-second-49983", same), false, ""},
		"by headers":                    {append(at("localhost", good, same), "x-sandbox-id", "a", "x-sandbox-port", "8000"), false, ""},
		"by path":                       {[]string{":authority", "localhost", ":path", "/sandboxes/a/8000/", "cookie", good, "sec-fetch-site", "same-origin"}, false, ""},
		"in two headers":                {append(at(own, good, same), "cookie", "a=b"), false, ""},
	} {
		for _, kind := range []struct {
			name, pool string
			private    bool
		}{{"private", "open", true}, {"by key", "keyed", false}, {"by token", "token", false}, {"open", "open", false}} {
			t.Run(name+"/"+kind.name, func(t *testing.T) {
				f := newFixture(t)
				r := testRoute("a")
				r.Pool, r.Private, r.TokenUID = routecache.PoolOf("team", kind.pool), kind.private, new(types.UID("second"))
				f.put(t, r)
				a := f.ask(t, tc.headers...)
				open := tc.opens || kind.name == "open" && name != "in two headers"
				if (a.status == 0) != open {
					t.Fatalf("answer %+v, want it open: %v", a, open)
				}
				if tc.opens && a.cookie != tc.left {
					t.Errorf("the sandbox sees the cookies %q, want %q", a.cookie, tc.left)
				}
				if open && !tc.opens && a.cookie != "none" && name != "another name" {
					t.Errorf("the sandbox sees the cookies %q", a.cookie)
				}
			})
		}
	}
}

// Cookies that open no port are left as they are, and are not copied.
func TestOtherCookies(t *testing.T) {
	f := newFixture(t)
	f.put(t, testRoute("hello"))
	headers := append(browserRequest(), "cookie", "a=b; session=0123456789", "cookie", "c=d")
	if a := f.ask(t, headers...); a.status != 0 || a.cookie != "" {
		t.Errorf("answer %+v", a)
	}
	s := newReplay(t, headers...)
	if got := testing.AllocsPerRun(1000, func() {
		if err := f.Process(s); err != nil {
			t.Fatal(err)
		}
	}); got > maxHitAllocs {
		t.Errorf("a hit with cookies allocates %v times, at most %d are allowed", got, maxHitAllocs)
	}
}
