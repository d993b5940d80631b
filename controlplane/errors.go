package controlplane

import (
	"errors"
	"strings"
)

// Why a gateway's lease is lost.
var (
	errLost    = errors.New("the lease is not this gateway's any more")
	errExpired = errors.New("the lease is past its time")
	errRewound = errors.New("the API server has gone back to an older state (a restored etcd?): everything is listed anew")
)

// ErrClosed is returned by a Client that was closed.
var ErrClosed = errors.New("control-plane client closed")

// UnansweredError says which gateways did not give the answer that was asked of
// them. Try again: a gateway that stays silent is waited for until the end of
// its lease.
type UnansweredError struct {
	// Gateways are lease names, sorted.
	Gateways []string
}

// Error names the gateways.
func (e *UnansweredError) Error() string {
	return "no answer from gateways " + strings.Join(e.Gateways, ", ")
}
