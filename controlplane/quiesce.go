package controlplane

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sandlane/sandlane/controlplane/controlplanepb"
	"github.com/sandlane/sandlane/failpoint"
)

const (
	// quiesceTimeout is how long one gateway may take for a Quiesce: a few tries at a pod.
	quiesceTimeout = 8 * time.Second
	// saveTimeout is the same for one that keeps files.
	saveTimeout = time.Minute
)

// Errors of a Quiesce that a gateway has answered.
var (
	// ErrMoved: the sandbox is of another claim or generation, or has ended.
	ErrMoved = errors.New("the sandbox has moved on")
	// ErrNoFreezer: the sandbox's pod cannot be frozen.
	ErrNoFreezer = errors.New("the sandbox's pod cannot be frozen")
	// ErrNotDone: a gateway has tried, and failed. Another try may succeed.
	ErrNotDone = errors.New("the freezer did not carry it out")
)

// Quiesce says what the freezer of a sandbox's pod is to carry out again: what the spec of
// that generation asks for.
type Quiesce struct {
	SandboxID, ClaimID string
	Freeze             bool
	// Saves: the sandbox is to hibernate, so that the gateway keeps its files as well and
	// gives its pod up, which takes longer. The gateway reads that from the spec.
	Saves      bool
	Generation int64
}

// Quiescer carries it out at a gateway. It returns ErrMoved, ErrNoFreezer, or why it
// failed.
type Quiescer interface {
	Quiesce(ctx context.Context, q Quiesce) error
}

// Quiesce asks one gateway, and further ones while those before did not answer. It returns
// nil when the freezer has carried it out.
func (c *Client) Quiesce(ctx context.Context, q Quiesce) error {
	gateways, err := c.list(ctx)
	if err != nil {
		return fmt.Errorf("quiescing sandbox %s: %w", q.SandboxID, err)
	}
	err = errors.New("there is no gateway")
	rand.Shuffle(len(gateways), func(i, j int) { gateways[i], gateways[j] = gateways[j], gateways[i] })
	for _, g := range gateways {
		var r *controlplanepb.QuiesceResponse
		if r, err = c.quiesceAt(ctx, g, q); err != nil {
			continue
		}
		switch r.GetOutcome() {
		case controlplanepb.QuiesceOutcome_QUIESCE_OUTCOME_DONE:
			return nil
		case controlplanepb.QuiesceOutcome_QUIESCE_OUTCOME_MOVED:
			return ErrMoved
		case controlplanepb.QuiesceOutcome_QUIESCE_OUTCOME_NO_FREEZER:
			return fmt.Errorf("%w: %s", ErrNoFreezer, r.GetMessage())
		}
		return fmt.Errorf("quiescing sandbox %s: gateway %s: %w: %s", q.SandboxID, g.Name, ErrNotDone, r.GetMessage())
	}
	return fmt.Errorf("quiescing sandbox %s: %w", q.SandboxID, err)
}

func (c *Client) quiesceAt(ctx context.Context, g Gateway, q Quiesce) (*controlplanepb.QuiesceResponse, error) {
	stub, err := c.gateway(g)
	if err != nil {
		return nil, err
	}
	limit := quiesceTimeout
	if q.Saves {
		limit = saveTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := stub.Quiesce(ctx, &controlplanepb.QuiesceRequest{
		SandboxId: q.SandboxID, ClaimId: q.ClaimID, Freeze: q.Freeze, Generation: q.Generation,
	})
	if err == nil {
		err = g.answered(r.GetHolder())
	}
	return r, err
}

// Quiesce implements the gRPC service.
func (s *Server) Quiesce(ctx context.Context, r *controlplanepb.QuiesceRequest) (*controlplanepb.QuiesceResponse, error) {
	failpoint.Hit("controlplane/reached")
	s.o.Member.Reached()
	err := s.o.Quiescer.Quiesce(ctx, Quiesce{
		SandboxID: r.GetSandboxId(), ClaimID: r.GetClaimId(), Freeze: r.GetFreeze(), Generation: r.GetGeneration(),
	})
	out := &controlplanepb.QuiesceResponse{Holder: s.o.Member.Holder(), Outcome: controlplanepb.QuiesceOutcome_QUIESCE_OUTCOME_DONE}
	switch {
	case err == nil:
		return out, nil
	case errors.Is(err, ErrMoved):
		out.Outcome = controlplanepb.QuiesceOutcome_QUIESCE_OUTCOME_MOVED
	case errors.Is(err, ErrNoFreezer):
		out.Outcome = controlplanepb.QuiesceOutcome_QUIESCE_OUTCOME_NO_FREEZER
	default:
		out.Outcome = controlplanepb.QuiesceOutcome_QUIESCE_OUTCOME_FAILED
	}
	out.Message = err.Error()
	return out, nil
}
