package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/activation"
)

// The headers that sandboxd reads of its control plane.
const (
	initSecretHeader = "Sandlane-Init-Secret"
	sandboxHeader    = "Sandlane-Sandbox-Id"
	templateHeader   = "Sandlane-Template-Id"
	envdTokenHeader  = "X-Access-Token"
)

const (
	agentConnectTimeout = time.Second
	maxAgentAnswer      = 64 << 10
)

// errNoLease says that this gateway may not act for sandboxes at the moment.
var errNoLease = errors.New("the gateway does not hold its lease")

// Tokens are the secrets that sandboxd knows its control plane by.
type Tokens interface {
	// Envd is the token of a sandbox.
	Envd(id string, uid types.UID) string
	// Init is the secret of sandboxd's init in a namespace.
	Init(namespace string) string
}

// Agent speaks to the sandboxd of a pod as its control plane. A call may last two
// seconds at most, and is made only while the route to the pod would be cached
// (see routecache's Admits): what it sends must not reach the address's next pod.
// Its connections are not kept for the same reason. It is safe for concurrent use.
type Agent struct {
	tokens Tokens
	held   func() bool // the gateway's lease
	client *http.Client
}

// New makes an Agent. held reports whether the gateway holds its lease, without
// which nothing is called.
func New(tokens Tokens, held func() bool) *Agent {
	return &Agent{tokens: tokens, held: held, client: &http.Client{
		Transport: &http.Transport{
			DialContext:       (&net.Dialer{Timeout: agentConnectTimeout}).DialContext,
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// token is what sandboxd asks for in this sandbox; empty if for nothing.
func (a *Agent) token(s *v1alpha1.Sandbox) string {
	if s.Spec.Network.Unsecured {
		return ""
	}
	return a.tokens.Envd(s.Name, s.UID)
}

// Init gives the pod's sandboxd the sandbox's token and environment, before which
// it answers nobody. It may be repeated with the same ones. An
// activation.ErrUnusable says that repeating it is of no use.
func (a *Agent) Init(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod, env map[string]string) error {
	if !v1alpha1.RunsSandboxd(&pod.Spec) {
		return fmt.Errorf("%w: no container of pod %s has sandboxd's port %d", activation.ErrUnusable, pod.Name, v1alpha1.SandboxdPort)
	}
	addr, err := netip.ParseAddr(v1alpha1.FencedAddress(pod))
	if err != nil {
		return fmt.Errorf("pod %s cannot be reached: %w", pod.Name, err)
	}
	body, err := json.Marshal(struct {
		Token string            `json:"accessToken"`
		Env   map[string]string `json:"envVars,omitempty"`
		Now   time.Time         `json:"timestamp"`
	}{a.token(s), env, time.Now().UTC()})
	if err != nil {
		return fmt.Errorf("initialise sandboxd: %w", err)
	}
	header := http.Header{"Content-Type": {"application/json"}, initSecretHeader: {a.tokens.Init(s.Spec.Namespace)}}
	// Headers and not the body: another gateway of an older version does not send
	// them, and what one body says another's must not contradict.
	header.Set(sandboxHeader, s.Name)
	header.Set(templateHeader, s.Spec.Pool)
	status, _, err := a.call(ctx, http.MethodPost, addr, "/init", header, body)
	switch {
	case err != nil:
		return fmt.Errorf("initialise sandboxd of pod %s: %w", pod.Name, err)
	case status < 300:
		return nil
	case status == http.StatusConflict:
		return fmt.Errorf("%w: sandboxd of pod %s was initialised otherwise already", activation.ErrUnusable, pod.Name)
	case status == http.StatusUnauthorized:
		return fmt.Errorf("%w: sandboxd of pod %s does not know the init secret of its namespace", activation.ErrUnusable, pod.Name)
	case status < 500 && status != http.StatusTooManyRequests:
		return fmt.Errorf("%w: pod %s answered /init with %d", activation.ErrUnusable, pod.Name, status)
	}
	return fmt.Errorf("initialise sandboxd of pod %s: status %d", pod.Name, status)
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

// Metrics asks the sandboxd at an address what its sandbox uses.
func (a *Agent) Metrics(ctx context.Context, addr netip.Addr, id string, uid types.UID) (Metrics, error) {
	var m Metrics
	status, body, err := a.call(ctx, http.MethodGet, addr, "/metrics", http.Header{envdTokenHeader: {a.tokens.Envd(id, uid)}}, nil)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d", status)
	}
	if err == nil {
		err = json.Unmarshal(body, &m)
	}
	if err != nil {
		return m, fmt.Errorf("ask sandboxd for metrics: %w", err)
	}
	return m, nil
}

func (a *Agent) call(ctx context.Context, method string, addr netip.Addr, path string, header http.Header, body []byte) (int, []byte, error) {
	if !a.held() {
		return 0, nil, errNoLease
	}
	u := "http://" + net.JoinHostPort(addr.String(), strconv.Itoa(v1alpha1.SandboxdPort)) + path
	req, err := http.NewRequestWithContext(ctx, method, u, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header = header
	res, err := a.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAgentAnswer))
	return res.StatusCode, answer, err
}
