package sandboxdclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The headers of the calls to sandboxd.
const (
	signatureHeader = "Sandlane-Init-Signature"
	sandboxHeader   = "Sandlane-Sandbox-Id"
	templateHeader  = "Sandlane-Template-Id"
	envdTokenHeader = "X-Access-Token"
)

const (
	agentConnectTimeout = time.Second
	maxAgentAnswer      = 256 << 10 // an hour of metrics is 110 kB
)

// errNoLease says that this gateway may not act for sandboxes at the moment.
var errNoLease = errors.New("the gateway does not hold its lease")

// Tokens makes the tokens that sandboxd requires of requests once it is initialised.
type Tokens interface {
	// Envd returns the token of a sandbox.
	Envd(id string, uid types.UID) string
}

// Signer signs the calls that only a gateway may make.
type Signer interface {
	// Sign signs with the key that has this ID. ok is false if this cluster has no such
	// key; err says that the key could not be looked up.
	Sign(ctx context.Context, keyID string, message []byte) (signature []byte, ok bool, err error)
}

// Agent calls the sandboxd of a pod as a gateway. What a call sends must not reach the next
// pod at the same address. So the caller bounds each call to two seconds, and calls only
// while the route cache admits the route to the pod (routecache.Cache.Admits); and Agent
// closes its connections after each call. It is safe for concurrent use.
type Agent struct {
	// Authority returns the certificate of egress's authority, as PEM, which programs of
	// sandboxes with rules are to trust. Nil where there is none. Set it before use.
	Authority func(context.Context) ([]byte, error)

	tokens     Tokens
	signer     Signer
	holdsLease func() bool
}

// New makes an Agent. holdsLease reports whether the gateway holds its lease; while it does
// not, every call fails.
func New(tokens Tokens, signer Signer, holdsLease func() bool) *Agent {
	return &Agent{tokens: tokens, signer: signer, holdsLease: holdsLease}
}

// token returns the token that requests to sandboxd in this sandbox need; empty if they need
// none.
func (a *Agent) token(id string, uid types.UID, unsecured bool) string {
	if unsecured {
		return ""
	}
	return a.tokens.Envd(id, uid)
}

// Metrics is sandboxd's answer to GET /metrics.
type Metrics struct {
	TS         int64   `json:"ts"`
	CPUCount   int     `json:"cpu_count"`
	CPUUsedPct float64 `json:"cpu_used_pct"`
	MemTotal   int64   `json:"mem_total"`
	MemUsed    int64   `json:"mem_used"`
	MemCache   int64   `json:"mem_cache"`
	DiskUsed   int64   `json:"disk_used"`
	DiskTotal  int64   `json:"disk_total"`
}

// Metrics asks the sandboxd at an address what its sandbox uses now, and with history
// also what it has used, oldest first.
func (a *Agent) Metrics(ctx context.Context, addr netip.Addr, id string, uid types.UID, history bool) ([]Metrics, error) {
	path := "/metrics"
	if history {
		path += "?history"
	}
	var all []Metrics
	c := a.connect(addr)
	defer c.close()
	status, body, err := c.call(ctx, http.MethodGet, path, http.Header{envdTokenHeader: {a.tokens.Envd(id, uid)}}, nil)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d", status)
	}
	switch {
	case err != nil:
	case len(body) > 0 && body[0] == '[':
		err = json.Unmarshal(body, &all)
	default:
		all = make([]Metrics, 1)
		err = json.Unmarshal(body, &all[0])
	}
	if err != nil {
		return nil, fmt.Errorf("ask sandboxd for metrics: %w", err)
	}
	return all, nil
}
