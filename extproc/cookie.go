package extproc

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// A browser that was sent to LinkPath of a sandbox's host with a ticket gets a cookie for that
// port (package credentials has its states). The cookie stands for a token or key:
//
//   - in the host form alone, where each port has an origin of its own: elsewhere the pages of one
//     sandbox could use the cookie of another;
//   - if the request comes from a page of that origin, or from the user by hand: another site's page,
//     also one of another sandbox of the domain, can make the browser send the cookie. A browser says
//     it by Origin or Sec-Fetch-Site, which no page can set; a request with neither is refused;
//   - never on sandboxd's port, and never for the REST API, which is not behind this package.
//
// No sandbox sees it, valid or not: it is taken off each request, and the module of the fast path
// leaves requests that have one to this package.

// LinkPath is the path of links that open a port, on the host of the port. Envoy sends it to the
// gateway's own server.
const LinkPath = "/.sandlane/open"

// PortCookie is the name of the cookie; with TLS securePrefix stands before it, so that no other
// host can set it.
const (
	PortCookie   = "sandlane-port"
	SecurePrefix = "__Host-"

	headerCookie = "cookie"
)

var portCookie = []byte(PortCookie)

// hasPortCookie reports whether the request carries the cookie of its port of the sandbox with
// that UID, and its own origin sent it.
func (s *Server) hasPortCookie(c *call, uid *types.UID) bool {
	h := &c.headers
	if h.Cookie.Value == "" || uid == nil || c.target.Form != FormHost || c.target.Port == sandboxdPort || !h.fromOwnOrigin() {
		return false
	}
	for cookie := range strings.SplitSeq(h.Cookie.Value, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(cookie), "=")
		if isPortCookie(name) && s.o.Tokens.ValidPortCookie(c.target.ID, *uid, c.target.Port, value) {
			return true
		}
	}
	return false
}

// withoutPortCookies returns the other cookies of a header.
func withoutPortCookies(header string) string {
	var others []string
	for cookie := range strings.SplitSeq(header, ";") {
		cookie = strings.TrimSpace(cookie)
		if name, _, _ := strings.Cut(cookie, "="); cookie != "" && !isPortCookie(name) {
			others = append(others, cookie)
		}
	}
	return strings.Join(others, "; ")
}

func isPortCookie(name string) bool {
	return strings.TrimPrefix(strings.TrimSpace(name), SecurePrefix) == PortCookie
}

// fromOwnOrigin reports whether the browser says that a page of the request's own origin, or its
// user by hand, has sent the request. With the cookie of TLS an origin without TLS is another one.
func (h *Headers) fromOwnOrigin() bool {
	if h.FetchSite.Count > 0 && (h.FetchSite.Count > 1 || h.FetchSite.Value != "same-origin" && h.FetchSite.Value != "none") {
		return false
	}
	if h.Origin.Count > 0 {
		scheme, host, _ := strings.Cut(h.Origin.Value, "://")
		secure := scheme == "https" || scheme == "http" && !strings.Contains(h.Cookie.Value, SecurePrefix+PortCookie)
		return h.Origin.Count == 1 && secure && strings.EqualFold(host, h.Authority.Value)
	}
	return h.FetchSite.Count > 0
}
