package claims

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/credentials"
)

const (
	agentPool = "agents"
	team      = "bench"
	timeout   = 300 // s, what SDKs ask for
)

// create measures POST /sandboxes as an SDK sends it, through Envoy: the two writes, and the
// call that gives the pod's sandboxd its token, which the bare side does not make. One small
// server is the sandboxd of all pods.
func (b *bench) create(ctx context.Context) error {
	agent, err := b.Start(ctx, "claims-agent", []string{"GOMAXPROCS=1"}, suite.Answers("tcp", fmt.Sprintf("127.0.0.1:%d", v1alpha1.SandboxdPort)),
		b.Self, "agent", "--port", strconv.Itoa(v1alpha1.SandboxdPort))
	if err != nil {
		return err
	}
	defer agent.Stop()
	if err := b.cluster.MakeAgentPool(ctx, agentPool); err != nil {
		return err
	}
	key, _, err := credentials.NewStore(b.cluster.Client, suite.KeyNamespace).Create(ctx, team, suite.Namespace)
	if err != nil {
		return err
	}
	f, err := b.startFronts(ctx, "create", 1)
	defer f.stop()
	if err != nil {
		return err
	}
	body := fmt.Appendf(nil, `{"templateID":%q,"timeout":%d,"secure":true}`, agentPool, timeout)
	ask := func(ctx context.Context, _ int) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.urls[0]+"sandboxes", bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-API-Key", key)
		code, err := status(req)
		if err == nil && code != http.StatusCreated {
			err = fmt.Errorf("a create is answered with %d", code)
		}
		return err
	}
	return b.measureWay(ctx, f, way{rows: "create-%d", pool: agentPool, ask: ask, bare: func(s *v1alpha1.Sandbox) {
		s.Spec.Pool, s.Spec.Team = agentPool, team
		s.Spec.Timeouts.EndAt = new(metav1.NewTime(time.Now().Add(timeout * time.Second).Truncate(time.Second)))
		s.Spec.Timeouts.Idle = &metav1.Duration{}
	}})
}
