package peek

import (
	"bytes"
	"errors"
	"io"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// maxHead bounds the head of a request.
const maxHead = 64 << 10

// Errors of requests. ErrHead and what wraps it is a request that has no single reading.
var (
	ErrHead    = errors.New("the request has no single reading")
	ErrTooLong = errors.New("the request's head is too long")
)

// Head is what a request's head says of where it goes and where it ends.
type Head struct {
	Method string
	// Host is as the client wrote it, with its port.
	Host string
	// Length is the body's; 0 if it is Chunked.
	Length  int64
	Chunked bool
	// Upgrade: after an answer with 101 the connection speaks WebSocket.
	Upgrade bool
}

// ParseHead reads the head at the beginning of b, whose length it returns; 0 means that
// more must be read. It takes less than the standards allow, and nothing that two programs
// may read in different ways: lines end with CR and LF, and do not go on in the next; there
// is one Host, and at most one length, in one form; a target begins with a slash.
func ParseHead(b []byte) (Head, int, error) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	switch {
	case end < 0 && len(b) >= maxHead || end > maxHead:
		return Head{}, 0, ErrTooLong
	case end < 0:
		return Head{}, 0, nil
	}
	request, rest, _ := strings.Cut(string(b[:end+2]), "\r\n")
	h, old, ok := parseRequestLine(request)
	if !ok {
		return Head{}, 0, ErrHead
	}
	seen, upgrades := map[string]int{}, false
	for line := range strings.SplitSeq(strings.TrimSuffix(rest, "\r\n"), "\r\n") {
		if rest == "" {
			break
		}
		name, value, ok := parseField(line)
		if seen[name]++; !ok || !h.take(name, value, old) {
			return Head{}, 0, ErrHead
		}
		upgrades = upgrades || name == "connection" && httpguts.HeaderValuesContainsToken([]string{value}, "upgrade")
	}
	// An Upgrade that Connection does not name is for nobody: what comes behind it is a request.
	if seen["host"] != 1 || seen["content-length"]+seen["transfer-encoding"] > 1 || h.Upgrade && (!upgrades || h.Chunked || h.Length > 0 || old) {
		return Head{}, 0, ErrHead
	}
	return h, end + 4, nil
}

// parseRequestLine reads a request's first line; old is HTTP/1.0.
func parseRequestLine(line string) (h Head, old, ok bool) {
	parts := strings.Split(line, " ")
	if len(parts) != 3 || !httpguts.ValidHeaderFieldName(parts[0]) {
		return h, false, false
	}
	h.Method = parts[0]
	target, version := parts[1], parts[2]
	for i := range len(target) {
		if target[i] <= ' ' || target[i] == 0x7f {
			return h, false, false
		}
	}
	if !strings.HasPrefix(target, "/") && (target != "*" || h.Method != "OPTIONS") && h.Method != "CONNECT" {
		return h, false, false
	}
	// net/http refuses such a target after the gate has passed it, and all that follows with it.
	uri := target
	if !strings.HasPrefix(target, "/") && h.Method == "CONNECT" {
		uri = "http://" + target
	}
	if _, err := url.ParseRequestURI(uri); err != nil {
		return h, false, false
	}
	return h, version == "HTTP/1.0", version == "HTTP/1.1" || version == "HTTP/1.0"
}

// parseField reads a header or a trailer; its name is in lower case.
func parseField(line string) (name, value string, ok bool) {
	name, value, found := strings.Cut(line, ":")
	value = strings.Trim(value, " \t")
	return strings.ToLower(name), value, found && httpguts.ValidHeaderFieldName(name) && httpguts.ValidHeaderFieldValue(value)
}

// take notes a header; false if its value is no single reading.
func (h *Head) take(name, value string, old bool) bool {
	switch name {
	case "host":
		h.Host = value
		return value != ""
	case "content-length":
		for i := range len(value) {
			if value[i] < '0' || value[i] > '9' {
				return false
			}
			h.Length = h.Length*10 + int64(value[i]-'0')
		}
		return value != "" && len(value) <= 18
	case "transfer-encoding":
		h.Chunked = strings.EqualFold(value, "chunked")
		return h.Chunked && !old
	case "upgrade":
		again := h.Upgrade
		h.Upgrade = strings.EqualFold(value, "websocket")
		return h.Upgrade && !again
	}
	return true
}

// ReadHead reads from r until it has a head, and returns it and all bytes that it has taken.
func ReadHead(r io.Reader) (h Head, taken []byte, err error) {
	for {
		if h, n, err := ParseHead(taken); n > 0 || err != nil {
			return h, taken, err
		}
		if taken, err = more(r, taken); err != nil {
			return Head{}, taken, err
		}
	}
}

// more appends what one call of Read gives.
func more(r io.Reader, to []byte) ([]byte, error) {
	var b [4 << 10]byte
	n, err := r.Read(b[:])
	if n > 0 {
		err = nil // it comes again
	}
	return append(to, b[:n]...), err
}
