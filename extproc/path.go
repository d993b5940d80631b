package extproc

import (
	"net/url"
	"path"
	"strings"
)

const pathPrefix = "/sandboxes/"

// validPath reports whether p can be a :path: rooted (or the * of OPTIONS),
// without control characters, spaces or a fragment. An absolute-form target is
// Envoy's to split; one that comes through is refused.
func validPath(p string) bool {
	if p == "*" {
		return true
	}
	if p == "" || p[0] != '/' {
		return false
	}
	for i := range len(p) {
		if c := p[i]; c <= ' ' || c == 0x7f || c == '#' {
			return false
		}
	}
	return true
}

// parsePath reads /sandboxes/<ID>/<port>/rest. A path is of this form if
// something stands where the port belongs that is not a plain word: the REST
// API's /sandboxes/<ID>/timeout names no target. Nothing is decoded: a
// per cent sign can stand in neither an ID nor a port.
func parsePath(p string) (Target, error) {
	full, _, _ := strings.Cut(p, "?")
	segments, ok := strings.CutPrefix(full, pathPrefix)
	if !ok {
		return Target{}, ErrNoTarget
	}
	idPart, rest, found := strings.Cut(segments, "/")
	if !found {
		return Target{}, ErrNoTarget
	}
	portPart, _, slash := strings.Cut(rest, "/")
	if portPart == "" || isWord(portPart) {
		return Target{}, ErrNoTarget
	}
	id, port, err := parseIDPort(idPart, portPart)
	if err != nil {
		return Target{}, err
	}
	upstream := p[len(pathPrefix)+len(idPart)+1+len(portPart):]
	if !slash { // no rest: what is left is the query or nothing
		upstream = "/" + upstream
	}
	return Target{ID: id, Port: port, Form: FormPath, Path: upstream}, nil
}

// isWord reports whether s is letters only, as every action of the REST API is.
func isWord(s string) bool {
	for i := range len(s) {
		if c := s[i] | 0x20; c < 'a' || c > 'z' {
			return false
		}
	}
	return true
}

// sandboxdPort is where the agent in a sandbox listens (E2B's envd).
const sandboxdPort = 49983

// controlPath looks for a path of sandboxd that only the control plane may
// call. It compares the decoded, cleaned path, whatever the method, and returns
// it. A path that cannot be decoded is an error.
func controlPath(p string) (clean string, reserved bool, err error) {
	p, _, _ = strings.Cut(p, "?")
	if p, err = url.PathUnescape(p); err != nil {
		return "", false, errPath
	}
	clean = path.Clean("/" + strings.ReplaceAll(p, `\`, "/"))
	switch clean {
	case "/archive", "/collapse", "/freeze", "/fsfreeze", "/fsthaw", "/init", "/restore", "/unfreeze", "/upgrade":
		return clean, true, nil
	}
	return clean, false, nil
}
