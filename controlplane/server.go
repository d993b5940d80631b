package controlplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/sandlane/sandlane/controlplane/controlplanepb"
	"github.com/sandlane/sandlane/failpoint"
	"github.com/sandlane/sandlane/routecache"
)

// Fencer carries out fences; *routecache.Cache is one. It returns nil once all
// of them are acknowledged (design: "Fence").
type Fencer interface {
	Fence(ctx context.Context, fences []routecache.Fence) error
}

// ActivitySource says what was in use.
type ActivitySource interface {
	// LastActive reports which uses were noted after the cursor of an earlier report
	// of this source; 0 asks for all.
	LastActive(cursor uint64) ActivityReport
	// Remember takes in what a controller knows of claims, to report it as of its own. It
	// keeps of a claim all that it is given, or nothing.
	Remember(seen []Sighting, used []Activity)
}

// ActivityReport is what a gateway saw in use.
type ActivityReport struct {
	// Source names what Cursor counts in; it changes when uses were forgotten,
	// at the latest with the process.
	Source string
	// Cursor is where the next report may begin.
	Cursor uint64
	// Known is false while the gateway cannot tell what is in use.
	Known   bool
	Entries []Activity
	// Seen is what was remembered of claims that run, for a cursor of 0.
	Seen []Sighting
}

// Activity is how long ago a claim was last in use.
type Activity struct {
	SandboxID, ClaimID string
	Age                time.Duration
}

// Sighting is how long a controller has seen a claim run, and the Sandbox's pauseOrder for
// which that held.
type Sighting struct {
	SandboxID, ClaimID string
	Age                time.Duration
	PauseOrder         int64
}

// Member is the gateway's lease as the server needs it; *Membership is one.
type Member interface {
	// Holder names this process and its epoch.
	Holder() string
	// Reached is called for every call of a controller.
	Reached()
}

// ServerOptions configure a Server. All but TLS, PickOffset and Log are required of a gateway; a
// process of another kind is asked for fences alone, and has none of Activity, Demand,
// Releaser and PauseEnforcer.
type ServerOptions struct {
	// Listener is where controllers connect; the Server closes it. It listens
	// already, so that the lease may be written. TCP requires TLS.
	Listener      net.Listener
	Member        Member
	Fencer        Fencer
	Activity      ActivitySource
	Demand        DemandSource
	Releaser      Releaser
	PauseEnforcer PauseEnforcer
	// PickOffset is called at each poll: this gateway is number index, from 0, of `of` gateways.
	// It must not block. Nil: not called.
	PickOffset func(index, of int)
	// TLS says which peers may call. Without it, on a unix socket, its file mode does.
	TLS *MutualTLS
	// Log may be nil.
	Log *slog.Logger
}

// Server is a gateway's side of the control plane. Calls run concurrently.
type Server struct {
	controlplanepb.UnimplementedGatewayServer
	o    ServerOptions
	grpc *grpc.Server
	last handOver
	told told
}

// NewServer returns a Server that serves once Start is called.
func NewServer(o ServerOptions) (*Server, error) {
	fencesAlone := o.Activity == nil && o.Demand == nil && o.Releaser == nil && o.PauseEnforcer == nil
	if o.Listener == nil || o.Member == nil || o.Fencer == nil || !fencesAlone && (o.Activity == nil || o.Demand == nil || o.Releaser == nil || o.PauseEnforcer == nil) {
		return nil, errors.New("control-plane server: a listener, member, fencer, activity source, demand source, releaser and pause enforcer are required")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.PickOffset == nil {
		o.PickOffset = func(int, int) {}
	}
	options, err := o.transport()
	if err != nil {
		return nil, err
	}
	s := &Server{o: o, last: newHandOver()}
	// Clients notice a dead connection by pings; allow them as often as they do.
	enforce := grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingEvery / 2, PermitWithoutStream: true})
	s.grpc = grpc.NewServer(append(options, enforce)...)
	if fencesAlone {
		controlplanepb.RegisterGatewayServer(s.grpc, fenceServer{s: s})
	} else {
		controlplanepb.RegisterGatewayServer(s.grpc, s)
	}
	return s, nil
}

// fenceServer answers calls for fences alone.
type fenceServer struct {
	controlplanepb.UnimplementedGatewayServer
	s *Server
}

// Fence implements the gRPC service.
func (f fenceServer) Fence(ctx context.Context, r *controlplanepb.FenceRequest) (*controlplanepb.FenceResponse, error) {
	return f.s.Fence(ctx, r)
}

// stopGrace is how long calls in progress may take after the context ended.
// Clients give up sooner.
const stopGrace = 2 * time.Second

// Start serves until the context ends, then lets calls in progress finish. It
// returns an error if the listener fails. Call it once.
func (s *Server) Start(ctx context.Context) error {
	stopped := make(chan struct{})
	cancelStop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		force := time.AfterFunc(stopGrace, s.grpc.Stop)
		defer force.Stop()
		s.grpc.GracefulStop()
	})
	err := s.grpc.Serve(s.o.Listener)
	if !cancelStop() {
		<-stopped
		return nil
	}
	s.grpc.Stop()
	return fmt.Errorf("serving the control plane: %w", err)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every gateway
// serves.
func (*Server) NeedLeaderElection() bool { return false }

// Fence implements the gRPC service.
func (s *Server) Fence(ctx context.Context, r *controlplanepb.FenceRequest) (*controlplanepb.FenceResponse, error) {
	failpoint.Hit("controlplane/reached")
	s.o.Member.Reached()
	fences := make([]routecache.Fence, 0, len(r.GetFences()))
	for _, f := range r.GetFences() {
		addr, ok := netip.AddrFromSlice(f.GetAddress())
		if !ok {
			return nil, status.Error(codes.InvalidArgument, "an address has 4 or 16 bytes")
		}
		fences = append(fences, routecache.Fence{Addr: addr.Unmap(), RV: f.GetResourceVersion()})
	}
	if err := s.o.Fencer.Fence(ctx, fences); err != nil {
		return nil, callError(err)
	}
	return &controlplanepb.FenceResponse{Holder: s.o.Member.Holder()}, nil
}

// LastActive implements the gRPC service.
func (s *Server) LastActive(_ context.Context, r *controlplanepb.LastActiveRequest) (*controlplanepb.LastActiveResponse, error) {
	failpoint.Hit("controlplane/reached")
	s.o.Member.Reached()
	if n := r.GetGateways(); r.GetPlace() < n {
		s.o.PickOffset(int(r.GetPlace()), int(n))
	}
	s.last.received(r.GetSource(), r.GetCursor())
	final := s.last.begun() // before the look: what a final answer lacks is told by none
	cursor := r.GetCursor()
	report := s.o.Activity.LastActive(cursor)
	if cursor != 0 && report.Source != r.GetSource() {
		cursor = 0 // it was another source's
		report = s.o.Activity.LastActive(cursor)
	}
	out := &controlplanepb.LastActiveResponse{
		Holder: s.o.Member.Holder(), Source: report.Source, Cursor: report.Cursor, Known: report.Known || final, Final: final,
		Activities: make([]*controlplanepb.Activity, 0, len(report.Entries)),
	}
	for _, e := range report.Entries {
		out.Activities = append(out.Activities, &controlplanepb.Activity{
			SandboxId: e.SandboxID, ClaimId: e.ClaimID, AgeNanos: int64(e.Age),
		})
	}
	if cursor == 0 {
		out.Seen, out.Told = sightingsProto(report.Seen), s.told.answer(out.GetHolder())
	}
	if final {
		s.last.answered(report.Source, report.Cursor)
	}
	return out, nil
}

func callError(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Unavailable, err.Error())
}
