package extproc

import (
	"errors"
	"strconv"
)

// Form says how a request named its sandbox.
type Form uint8

// The three forms, in the order in which they are tried.
const (
	// FormHost is the host <port>-<ID>.<domain>.
	FormHost Form = iota + 1
	// FormHeaders is a pair of routing headers on a shared host.
	FormHeaders
	// FormPath is the path /sandboxes/<ID>/<port>/rest on a shared host.
	FormPath
)

// Target is what a request asks for: a port of a sandbox.
type Target struct {
	// ID matches v1alpha1.IDPattern. Of an ID in our generated form it is the
	// generated part only.
	ID string
	// Port is 1 to 65535.
	Port uint16
	Form Form
	// Path is the path and query to send upstream: the request's own, and in
	// the path form what follows the port.
	Path string
}

// String renders the target as the first label of the host form: <port>-<ID>.
func (t Target) String() string { return strconv.Itoa(int(t.Port)) + "-" + t.ID }

// ErrNoTarget says that a well-formed request names no sandbox.
var ErrNoTarget = errors.New("the request names no sandbox")

// BadTargetError says what is wrong with the form of a request. Its text is for
// the client.
type BadTargetError struct{ msg string }

func (e *BadTargetError) Error() string { return e.msg }

// What can be wrong with the form of a request. The first words are E2B's.
var (
	errHost       = &BadTargetError{"Invalid host. A sandbox's host is <port>-<ID>.<domain>"}
	errID         = &BadTargetError{"Invalid sandbox ID. It has 1 to 57 of a-z, 0-9 and dash, and neither begins nor ends with a dash"}
	errPort       = &BadTargetError{"Invalid sandbox port. It is a decimal number from 1 to 65535 without leading zeros"}
	errUpgrade    = &BadTargetError{"Port 49983 of a sandbox upgrades no connection"}
	errPath       = &BadTargetError{"Invalid path"}
	errLongPath   = &BadTargetError{"Invalid path: here, before its query, one of more than 4096 bytes has no %, backslash, double slash or dot segment"}
	errMissingID  = &BadTargetError{"missing header: a sandbox port header comes with the sandbox ID header of the same name"}
	errMissing    = &BadTargetError{"missing header: a sandbox ID header comes with the sandbox port header of the same name"}
	errDuplicate  = &BadTargetError{"A header that may come once is sent more often"}
	errDisagree   = &BadTargetError{"The X-Sandbox and E2b-Sandbox headers disagree"}
	errPoolName   = &BadTargetError{"Invalid X-Sandbox-Pool. It is [namespace/]name"}
	errEnvAndPool = &BadTargetError{"X-Sandbox-Env and X-Sandbox-Pool disagree: the pool is no member of the env"}
	errNamespace  = &BadTargetError{"X-Sandbox-Namespace is not supported. A sandbox is found by its ID alone; X-Sandbox-Pool: <namespace>/<name> says where a first request makes it"}
	errWorker     = &BadTargetError{"A service worker outlives its sandbox: only sandboxes that the REST API made have one, by their own host name"}
	errEnvName    = &BadTargetError{"Invalid X-Sandbox-Env. It is [namespace/]name"}
)

// ParseTarget says which port of which sandbox a request asks for. The first
// form that applies wins (design.md 5):
//
//  1. host <port>-<ID>.<domain>; routing headers are ignored there;
//  2. E2b-Sandbox-Id and E2b-Sandbox-Port, or X-Sandbox-Id and X-Sandbox-Port,
//     where the host is localhost, an IP address or sandbox.<domain>;
//  3. path /sandboxes/<ID>/<port>/rest on the same hosts as 2.
//
// It returns ErrNoTarget for a well-formed request that names no sandbox, and a
// *BadTargetError otherwise. It reads nothing but h.
//
// X-Sandbox-Namespace, by which other routers tell sandboxes of one name apart, is
// refused in each form: were it ignored, the request would reach or make another sandbox
// than it names.
//
// The script of a service worker is refused where another sandbox may get the same origin,
// now or later: a browser would run it for that sandbox's pages and links too.
func ParseTarget(h *Headers) (Target, error) {
	t, err := parseTarget(h)
	if err == nil && h.ServiceWorker.Count > 0 && (t.Form != FormHost || !isGenerated(t.ID)) {
		return Target{}, errWorker
	}
	return t, err
}

func parseTarget(h *Headers) (Target, error) {
	if h.Authority.Count > 1 || h.Path.Count > 1 || h.Cookie.Value != "" && h.Cookie.Count > 1 {
		return Target{}, errDuplicate
	}
	if h.Namespace.Count > 0 {
		return Target{}, errNamespace
	}
	path := h.Path.Value
	if !validPath(path) {
		return Target{}, errPath
	}
	kind, label, err := classifyHost(h.Authority.Value)
	if err != nil {
		return Target{}, err
	}
	switch kind {
	case hostSandbox:
		id, port, err := parseLabel(label)
		if err != nil {
			return Target{}, err
		}
		return Target{ID: id, Port: port, Form: FormHost, Path: path}, nil
	case hostShared:
		id, port, ok, err := parseHeaders(h)
		if err != nil {
			return Target{}, err
		}
		if ok {
			return Target{ID: id, Port: port, Form: FormHeaders, Path: path}, nil
		}
		return parsePath(path)
	default:
		return Target{}, ErrNoTarget
	}
}

// parseHeaders reads the routing headers; ok is false if there are none.
func parseHeaders(h *Headers) (id string, port uint16, ok bool, err error) {
	e2bID, e2bPort, e2b, err := parsePair(h.E2BID, h.E2BPort)
	if err != nil {
		return "", 0, false, err
	}
	id, port, ok, err = parsePair(h.ID, h.Port)
	if err != nil {
		return "", 0, false, err
	}
	switch {
	case e2b && ok && (id != e2bID || port != e2bPort):
		return "", 0, false, errDisagree
	case e2b:
		return e2bID, e2bPort, true, nil
	default:
		return id, port, ok, nil
	}
}

// parsePair reads one pair of routing headers; ok is false if neither was sent.
func parsePair(id, port Field) (string, uint16, bool, error) {
	switch {
	case id.Count == 0 && port.Count == 0:
		return "", 0, false, nil
	case id.Count > 1 || port.Count > 1:
		return "", 0, false, errDuplicate
	case id.Count == 0:
		return "", 0, false, errMissingID
	case port.Count == 0:
		return "", 0, false, errMissing
	}
	i, p, err := parseIDPort(id.Value, port.Value)
	return i, p, err == nil, err
}
