package extproc

import (
	"errors"
	"iter"
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
// API's /sandboxes/<ID>/timeout names no target. The rest is sent on as it was
// written. Each other reading of the path must name the same target.
func parsePath(p string) (Target, error) {
	full, _, _ := strings.Cut(p, "?")
	if costly(full) {
		return Target{}, errLongPath
	}
	t, upstream, err := parseSegments(full)
	if err != nil && !errors.Is(err, ErrNoTarget) {
		return Target{}, err
	}
	for other := range readings(full) {
		if o, _, otherErr := parseSegments(other); o != t || !errors.Is(otherErr, err) {
			return Target{}, errPath
		}
	}
	if err != nil {
		return Target{}, err
	}
	if t.Path = p[upstream:]; !strings.HasPrefix(t.Path, "/") { // the query or nothing
		t.Path = "/" + t.Path
	}
	return t, nil
}

// parseSegments reads one reading of a path without its query, and returns where the
// rest begins.
func parseSegments(full string) (t Target, rest int, err error) {
	segments, ok := strings.CutPrefix(full, pathPrefix)
	if !ok {
		return Target{}, 0, ErrNoTarget
	}
	idPart, after, found := strings.Cut(segments, "/")
	if !found {
		return Target{}, 0, ErrNoTarget
	}
	portPart, _, _ := strings.Cut(after, "/")
	if portPart == "" || isWord(portPart) {
		return Target{}, 0, ErrNoTarget
	}
	id, port, err := parseIDPort(idPart, portPart)
	if err != nil {
		return Target{}, 0, err
	}
	return Target{ID: id, Port: port, Form: FormPath}, len(pathPrefix) + len(idPart) + 1 + len(portPart), nil
}

// maxRead is the length in bytes up to which every path is read in each way. Envoy takes one of
// 60 KB, whose dozens of readings would cost milliseconds before anybody is known.
const maxRead = 4096

// costly reports whether a path without its query is too long for its readings. A clean one has
// no other reading than itself.
func costly(p string) bool {
	return len(p) > maxRead && (strings.ContainsAny(p, `%\`) || path.Clean(p) != strings.TrimSuffix(p, "/"))
}

// maxDecoded is how often readings decodes a path: once more than any server should.
const maxDecoded = 2

// readings yields a path without its query, and whatever else a server may take it for: with
// backslashes as they are and as slashes; each as it is and cleaned; each of these not
// decoded, or decoded and read again. Go's ServeMux cleans a path before it decodes it.
func readings(p string) iter.Seq[string] {
	return func(yield func(string) bool) { read(p, maxDecoded, yield) }
}

// read yields the readings of a path that may be decoded so many times, and returns false if
// yield did.
func read(p string, decodes int, yield func(string) bool) bool {
	if !decode(p, decodes, yield) {
		return false
	}
	slashes := strings.ReplaceAll(p, `\`, "/")
	if slashes != p && !decode(slashes, decodes, yield) {
		return false
	}
	if clean := path.Clean(p); clean != p && !decode(clean, decodes, yield) {
		return false
	}
	if clean := path.Clean(slashes); clean != slashes && slashes != p && !decode(clean, decodes, yield) {
		return false
	}
	return true
}

// decode yields p, and reads what it is when it is decoded.
func decode(p string, decodes int, yield func(string) bool) bool {
	if !yield(p) {
		return false
	}
	if decodes == 0 {
		return true
	}
	decoded, err := url.PathUnescape(p)
	return err != nil || decoded == p || read(decoded, decodes-1, yield)
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
// call, in each reading of the path, whatever the method, and returns it. A path that
// cannot be decoded is an error, and so is one that is costly.
func controlPath(p string) (reserved string, err error) {
	p, _, _ = strings.Cut(p, "?")
	if costly(p) {
		return "", errLongPath
	}
	if _, err := url.PathUnescape(p); err != nil {
		return "", errPath
	}
	for reading := range readings(p) {
		switch reading {
		case "/archive", "/collapse", "/freeze", "/fsfreeze", "/fsthaw", "/init", "/restore", "/unfreeze", "/upgrade":
			return reading, nil
		}
	}
	return "", nil
}
