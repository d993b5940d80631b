package access

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"time"
)

// A request without the token gets through to a file only with the signature of
// just that path, operation, user and time; whatever else its query says.
func FuzzSignature(f *testing.F) {
	const token = "the-token"
	now := time.Unix(1_800_000_000, 0)
	signed := func(path, operation, user, expiration string) string {
		text := path + ":" + operation + ":" + user + ":" + token
		if expiration != "" {
			text += ":" + expiration
		}
		sum := sha256.Sum256([]byte(text))
		return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
	}
	for _, expiration := range []string{"", "1800000000", "1799999999", "-1", "1e20", "99999999999999999999", " 1800000001"} {
		good := url.Values{"path": {"/a b"}, "username": {"root"}, "signature": {signed("/a b", "read", "root", expiration)}, "signature_expiration": {expiration}}
		f.Add("GET", good.Encode(), "/a b", "root", expiration)
		f.Add("POST", good.Encode(), "", "", expiration)
	}
	f.Add("POST", "path=x&path=y&signature=v1_&signature=", "x", "", "")
	f.Add("HEAD", "signature=%zz;path=1", ":read:", ":", "0")
	s := New(Options{Now: func() time.Time { return now }})
	if err := s.init(claim{AccessToken: token}, now); err != nil {
		f.Fatal(err)
	}
	passed := false
	guarded := s.Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true }))
	passes := func(method, query string) bool {
		passed = false
		r := httptest.NewRequest("GET", "/files", nil)
		r.Method, r.URL.RawQuery = method, query
		w := httptest.NewRecorder()
		guarded.ServeHTTP(w, r)
		if !passed && w.Code != 401 && method != "OPTIONS" {
			panic("a request was neither let through nor refused with 401 but " + strconv.Itoa(w.Code))
		}
		return passed
	}
	fresh := func(expiration string) bool {
		at, err := strconv.ParseInt(expiration, 10, 64)
		return expiration == "" || err == nil && at >= now.Unix()
	}
	f.Fuzz(func(t *testing.T, method, query, path, user, expiration string) {
		operation, known := map[string]string{"GET": "read", "HEAD": "read", "POST": "write"}[method]
		// Any query.
		q := (&url.URL{RawQuery: query}).Query()
		right := known && q.Get("signature") == signed(q.Get("path"), operation, q.Get("username"), q.Get("signature_expiration")) &&
			fresh(q.Get("signature_expiration"))
		if got := passes(method, query); got != right {
			t.Errorf("%s ?%s passes: %v, want %v", method, query, got, right)
		}
		// A right one, and the same for another operation, path or user.
		q = url.Values{"path": {path}, "username": {user}, "signature": {signed(path, "read", user, expiration)}}
		if expiration != "" {
			q.Set("signature_expiration", expiration)
		}
		if got := passes("GET", q.Encode()); got != fresh(expiration) {
			t.Errorf("a signed URL of %q for %q until %q passes: %v", path, user, expiration, got)
		}
		if passes("POST", q.Encode()) {
			t.Errorf("a signature for reading %q writes", path)
		}
		q.Set("path", path+"x")
		if passes("GET", q.Encode()) {
			t.Errorf("the signature of %q reads another path", path)
		}
		q.Set("path", path)
		q.Set("signature_expiration", "9"+expiration)
		if passes("GET", q.Encode()) {
			t.Errorf("the signature of %q outlives %q", path, expiration)
		}
	})
}
