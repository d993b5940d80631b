package controlplane

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/sandlane/sandlane/controlplane/controlplanepb"
	"github.com/sandlane/sandlane/failpoint"
)

// prepareTimeout is how long a gateway may take to prepare releases: it asks its
// Envoy. Requests that it holds meanwhile wait no longer than about that.
const prepareTimeout = 2 * time.Second

// Release is an idle release whose token stands on the Sandbox.
type Release struct {
	SandboxID, ClaimID, Token string
	// Idle is the timeout: a claim that was used less than so long ago is in use.
	Idle time.Duration
}

// Releaser prepares idle releases at a gateway.
type Releaser interface {
	// Prepare holds new requests of the claims, then looks which of the sandboxes
	// are in use. known is false if that cannot be told. What is held stays so
	// until its token is off the Sandbox, or the sandbox has ended.
	Prepare(ctx context.Context, releases []Release) (inUse []string, known bool)
}

// PrepareRelease asks every gateway to hold new requests of these claims, and returns
// which sandboxes are in use. A batch has each claim once. Call it after the
// tokens were written: a gateway that joins later finds them in its list. It
// fails with *UnansweredError if any gateway did not answer, or does not know;
// then any sandbox may be in use.
//
// A gateway that stopped since the last Poll may have known of use that no answer
// shows. So read Floor after PrepareRelease, before a release is carried out.
func (c *Client) PrepareRelease(ctx context.Context, releases []Release) (inUse map[string]bool, err error) {
	gateways, err := c.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("preparing idle releases: %w", err)
	}
	request := &controlplanepb.PrepareReleaseRequest{Releases: make([]*controlplanepb.Release, len(releases))}
	for i, r := range releases {
		request.Releases[i] = &controlplanepb.Release{
			SandboxId: r.SandboxID, ClaimId: r.ClaimID, Token: r.Token, IdleNanos: int64(r.Idle),
		}
	}
	answers := make([][]string, len(gateways))
	errs := make([]error, len(gateways))
	var asking sync.WaitGroup
	for i, g := range gateways {
		asking.Go(func() { answers[i], errs[i] = c.prepareOne(ctx, g, request) })
	}
	asking.Wait()
	inUse = map[string]bool{}
	var unanswered []string
	for i, err := range errs {
		if err != nil {
			c.o.Metrics.unanswered.Inc()
			c.o.Log.Debug("gateway did not prepare idle releases", "gateway", gateways[i].Name, "error", err)
			unanswered = append(unanswered, gateways[i].Name)
		}
		for _, id := range answers[i] {
			inUse[id] = true
		}
	}
	if len(unanswered) > 0 {
		sort.Strings(unanswered)
		return nil, fmt.Errorf("preparing idle releases: %w", &UnansweredError{Gateways: unanswered})
	}
	return inUse, nil
}

func (c *Client) prepareOne(ctx context.Context, g Gateway, request *controlplanepb.PrepareReleaseRequest) ([]string, error) {
	stub, err := c.gateway(g)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	r, err := stub.PrepareRelease(ctx, request)
	if err != nil {
		return nil, err
	}
	if err := g.answered(r.GetHolder()); err != nil {
		return nil, err
	}
	if !r.GetKnown() {
		return nil, errors.New("it cannot tell what is in use")
	}
	return r.GetInUse(), nil
}

// PrepareRelease implements the gRPC service.
func (s *Server) PrepareRelease(ctx context.Context, r *controlplanepb.PrepareReleaseRequest) (*controlplanepb.PrepareReleaseResponse, error) {
	failpoint.Hit("controlplane/reached")
	s.o.Member.Reached()
	// Before the look: an answer must not be of a later epoch than what it says.
	holder := s.o.Member.Holder()
	releases := make([]Release, len(r.GetReleases()))
	for i, one := range r.GetReleases() {
		releases[i] = Release{
			SandboxID: one.GetSandboxId(), ClaimID: one.GetClaimId(), Token: one.GetToken(),
			Idle: time.Duration(one.GetIdleNanos()),
		}
	}
	inUse, known := s.o.Releaser.Prepare(ctx, releases)
	return &controlplanepb.PrepareReleaseResponse{Holder: holder, Known: known, InUse: inUse}, nil
}
