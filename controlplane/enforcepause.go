package controlplane

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sandlane/sandlane/controlplane/controlplanepb"
	"github.com/sandlane/sandlane/failpoint"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

const (
	// enforcePauseTimeout is how long one gateway may take for an EnforcePause: a few tries at a pod.
	enforcePauseTimeout = 8 * time.Second
	// saveTimeout is the same for one that keeps files.
	saveTimeout = time.Minute
	// askAnotherAfter is how long a gateway may take before another is asked beside it, and
	// askedAtOnce how many are asked at once: a pod that is silent keeps one order for ten seconds,
	// however many gateways there are.
	askAnotherAfter = time.Second
	askedAtOnce     = 3
)

// Errors of an EnforcePause that a gateway has answered. A writes.ErrStale is one too: the sandbox is of
// another claim or pauseOrder, or has ended.
var (
	// ErrNoFreezer: the sandbox's pod cannot be frozen.
	ErrNoFreezer = errors.New("the sandbox's pod cannot be frozen")
	// ErrNotDone: the freezer has refused. Another try may succeed.
	ErrNotDone = errors.New("the freezer did not carry it out")
	// ErrNotSaved: the sandbox is frozen, and its files could not be kept.
	ErrNotSaved = errors.New("the files of the frozen sandbox could not be kept")
	// ErrUnanswered: the freezer did not answer this gateway, which says nothing about it.
	ErrUnanswered = errors.New("the freezer does not answer this gateway")
)

// outcomes are the errors of a PauseEnforcer that the gateway tells the controller as an outcome.
var outcomes = []struct {
	err     error
	outcome controlplanepb.EnforcePauseOutcome
}{
	{nil, controlplanepb.EnforcePauseOutcome_ENFORCE_PAUSE_OUTCOME_DONE},
	{writes.ErrStale, controlplanepb.EnforcePauseOutcome_ENFORCE_PAUSE_OUTCOME_MOVED},
	{ErrNoFreezer, controlplanepb.EnforcePauseOutcome_ENFORCE_PAUSE_OUTCOME_NO_FREEZER},
	{ErrNotDone, controlplanepb.EnforcePauseOutcome_ENFORCE_PAUSE_OUTCOME_REFUSED},
	{ErrNotSaved, controlplanepb.EnforcePauseOutcome_ENFORCE_PAUSE_OUTCOME_NOT_SAVED},
	{ErrUnanswered, controlplanepb.EnforcePauseOutcome_ENFORCE_PAUSE_OUTCOME_UNANSWERED},
}

// EnforcePause says what the freezer of a sandbox's pod is to carry out again: what the spec
// with that pauseOrder asks for.
type EnforcePause struct {
	SandboxID, ClaimID string
	Freeze             bool
	// Saves: the sandbox is to hibernate, so that the gateway keeps its files as well and
	// gives its pod up, which takes longer. The gateway reads that from the spec.
	Saves bool
	Order int64
}

// PauseEnforcer carries it out at a gateway. It returns one of the errors above only by what the
// freezer or the sandbox is; any other error means that this gateway could not ask.
type PauseEnforcer interface {
	EnforcePause(ctx context.Context, q EnforcePause) error
}

// EnforcePause asks one gateway, and further ones if those before could not ask the freezer or
// got no answer from it, since their own network may be the cause. While gateways do not answer, up
// to askedAtOnce are asked at once, and no further ones after enforcePauseTimeout; to keep files
// one is asked after the other, for two would keep them twice. It returns nil when the freezer
// has carried it out. ErrUnanswered, and an error that is none of the errors above, say
// nothing about the freezer, however many gateways were asked: a pod may be silent because
// its node, or the network of all gateways, stands still for a while.
func (c *Client) EnforcePause(ctx context.Context, q EnforcePause) error {
	gateways, err := c.list(ctx)
	if err != nil {
		return fmt.Errorf("having the freezer of sandbox %s carry out its order: %w", q.SandboxID, err)
	}
	err = errors.New("there is no gateway")
	rand.Shuffle(len(gateways), func(i, j int) { gateways[i], gateways[j] = gateways[j], gateways[i] })
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of calls that another's answer has made needless
	type answer struct {
		from     Gateway
		answered bool
		err      error
	}
	answers, open, begun := make(chan answer, len(gateways)), 0, time.Now()
	another := time.NewTicker(askAnotherAfter)
	defer another.Stop()
	for ask := true; ; {
		if ask && len(gateways) > 0 && (q.Saves || time.Since(begun) < enforcePauseTimeout) {
			g := gateways[0]
			gateways = gateways[1:]
			open++
			go func() {
				answered, err := c.enforcePauseAt(ctx, g, q)
				answers <- answer{g, answered, err}
			}()
		}
		if open == 0 {
			return fmt.Errorf("having the freezer of sandbox %s carry out its order: %w", q.SandboxID, err)
		}
		select {
		case a := <-answers:
			open--
			switch {
			case a.err == nil:
				return nil
			case a.answered && !errors.Is(a.err, ErrUnanswered):
				return fmt.Errorf("having the freezer of sandbox %s carry out its order: gateway %s: %w", q.SandboxID, a.from.Name, a.err)
			}
			err, ask = a.err, true
		case <-another.C:
			ask = !q.Saves && open < askedAtOnce
		}
	}
}

// enforcePauseAt asks one gateway. Once that has answered, err is its outcomeError.
func (c *Client) enforcePauseAt(ctx context.Context, g Gateway, q EnforcePause) (answered bool, err error) {
	stub, err := c.gateway(g)
	if err != nil {
		return false, err
	}
	limit := enforcePauseTimeout
	if q.Saves {
		limit = saveTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := stub.EnforcePause(ctx, &controlplanepb.EnforcePauseRequest{
		SandboxId: q.SandboxID, ClaimId: q.ClaimID, Freeze: q.Freeze, PauseOrder: q.Order,
	})
	if err == nil {
		err = g.answered(r.GetHolder())
	}
	if err != nil {
		return false, err
	}
	return true, outcomeError(r)
}

// outcomeError returns what a gateway says: nil, an error of outcomes, or, for an outcome
// that is not known here, an error that says nothing about the freezer.
func outcomeError(r *controlplanepb.EnforcePauseResponse) error {
	for _, o := range outcomes {
		switch {
		case o.outcome != r.GetOutcome():
		case o.err == nil:
			return nil
		default:
			return fmt.Errorf("%w: %s", o.err, r.GetMessage())
		}
	}
	return fmt.Errorf("its outcome %s does not tell whether the freezer failed: %s", r.GetOutcome(), r.GetMessage())
}

// EnforcePause implements the gRPC service.
func (s *Server) EnforcePause(ctx context.Context, r *controlplanepb.EnforcePauseRequest) (*controlplanepb.EnforcePauseResponse, error) {
	failpoint.Hit("controlplane/reached")
	s.o.Member.Reached()
	err := s.o.PauseEnforcer.EnforcePause(ctx, EnforcePause{
		SandboxID: r.GetSandboxId(), ClaimID: r.GetClaimId(), Freeze: r.GetFreeze(), Order: r.GetPauseOrder(),
	})
	for _, o := range outcomes {
		if !errors.Is(err, o.err) {
			continue
		}
		out := &controlplanepb.EnforcePauseResponse{Holder: s.o.Member.Holder(), Outcome: o.outcome}
		if err != nil {
			out.Message = err.Error()
		}
		return out, nil
	}
	return nil, callError(err)
}
