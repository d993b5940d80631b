package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// The headers that sandboxd reads of its control plane.
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

// Tokens are the tokens that sandboxd asks for once it is initialised.
type Tokens interface {
	// Envd is the token of a sandbox.
	Envd(id string, uid types.UID) string
}

// Signer signs what is sent to /init.
type Signer interface {
	// Sign signs with the key that has this ID. false means that this cluster has no
	// such key; an error, that it could not be found out.
	Sign(ctx context.Context, keyID string, message []byte) (signature []byte, ok bool, err error)
}

// Agent speaks to the sandboxd of a pod as its control plane. A call may last two
// seconds at most, and is made only while the route to the pod would be cached
// (see routecache's Admits): what it sends must not reach the address's next pod.
// Its connections are not kept for the same reason. It is safe for concurrent use.
type Agent struct {
	tokens Tokens
	signer Signer
	held   func() bool // the gateway's lease
}

// New makes an Agent. held reports whether the gateway holds its lease, without
// which nothing is called.
func New(tokens Tokens, signer Signer, held func() bool) *Agent {
	return &Agent{tokens: tokens, signer: signer, held: held}
}

// token is the token that requests to sandboxd in this sandbox need; empty if none.
func (a *Agent) token(s *v1alpha1.Sandbox) string {
	if s.Spec.Network.Unsecured {
		return ""
	}
	return a.tokens.Envd(s.Name, s.UID)
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
// also what it has used, oldest first. A sandboxd of an older image keeps no history.
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
