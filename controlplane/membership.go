package controlplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// Defaults of MembershipOptions.
const (
	DefaultLeaseDuration = 10 * time.Minute
	DefaultRenewEvery    = 10 * time.Second
)

// MembershipOptions configure a Membership. Leases, Name and Address are
// required.
type MembershipOptions struct {
	// Kind is what this process is; the zero value is one of Gateways.
	Kind Kind
	// Leases are the leases of the system namespace.
	Leases MemberLeases
	// Name is the lease's name: pod name and pod UID. A second process may use it only
	// once the first is dead: controllers take its new holder as proof that the first
	// process has no routes any more.
	Name string
	// Instance names the process. Empty means a random one.
	Instance string
	// Address is the gRPC target at which controllers reach the Server.
	Address string
	// PodUID is the UID of the pod that holds this process and its Envoy, both and
	// nothing of another gateway: its end is theirs. Empty means that there is none.
	PodUID string
	// LeaseDuration is how long the gateway may route after a renewal was sent.
	// It is told to the controller in whole seconds, rounded up. 0 means
	// DefaultLeaseDuration.
	LeaseDuration time.Duration
	// RenewEvery is the time between renewals. 0 means DefaultRenewEvery.
	RenewEvery time.Duration
	// OnJoin is called each time the lease was written. The gateway serves once
	// it has returned nil; after an error it is called again. On return the
	// index must show at least what a consistent read of pods and sandboxes shows
	// that was begun after OnJoin was called, also when the index already ran.
	// It must return when its context ends. Nil means nothing to do.
	OnJoin func(ctx context.Context) error
	// OnLost is called when the lease is lost, and by each call of Leave or
	// Abandon, while Held is false. On return no route may be left and no handler
	// in flight that took one. After an error it is called again. Never at the same time as OnJoin.
	// Nil means nothing to do.
	OnLost func(ctx context.Context) error
	// Metrics may be nil.
	Metrics *MembershipMetrics
	// Log may be nil.
	Log *slog.Logger
}

func (o *MembershipOptions) complete() error {
	if o.LeaseDuration == 0 {
		o.LeaseDuration = DefaultLeaseDuration
	}
	if o.RenewEvery == 0 {
		o.RenewEvery = DefaultRenewEvery
	}
	if o.Instance == "" {
		o.Instance = uuid.NewString()
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Metrics == nil {
		o.Metrics = NewMembershipMetrics(nil)
	}
	nothing := func(context.Context) error { return nil }
	if o.OnJoin == nil {
		o.OnJoin = nothing
	}
	if o.OnLost == nil {
		o.OnLost = nothing
	}
	switch {
	case o.Leases == nil:
		return errors.New("gateway membership: no lease client")
	case o.Name == "" || o.Address == "":
		return errors.New("gateway membership: a name and an address are required")
	case !validInstance(o.Instance):
		return fmt.Errorf("gateway membership: instance %q must not be empty nor contain a slash or a colon", o.Instance)
	case o.RenewEvery <= 0 || o.LeaseDuration < 2*o.RenewEvery:
		return fmt.Errorf("gateway membership: a lease of %v cannot be renewed every %v", o.LeaseDuration, o.RenewEvery)
	}
	return nil
}

// Membership keeps a gateway's lease. It is safe for concurrent use. Its states, changed
// by the goroutine of Start alone (and finally by Leave or Abandon):
//
//	joining   no lease; writes it (create, or overwrite of another holder)
//	listing   lease written; OnJoin runs; the lease is renewed meanwhile
//	serving   OnJoin returned nil: Held is true until the lease's time is up
//	losing    holder overwritten, lease deleted or its time up, or a renewal's
//	          resourceVersion is older than the one before: Held is false;
//	          OnJoin is stopped, OnLost drops all routes and waits for the
//	          handlers in flight; then the epoch is raised → joining
//	left      Leave was called: Held stays false; OnLost, then the lease is marked,
//	          which says that neither routes nor streams are left here
//	abandoned Abandon was called, since streams may be left: Held stays false; OnLost,
//	          and the lease counts its time out
//
// A step that fails is tried again; none is skipped. While the API server is
// away a gateway serves until its lease is up and then answers 503 until it has
// rejoined. A renewal that is answered after that does not revive the lease:
// the controller may have counted it as over meanwhile.
type Membership struct {
	o   MembershipOptions
	now func() instant

	// grant is nil unless the gateway serves. Written by Start's goroutines
	// under the term's mutex, and set to nil by Start and Abandon.
	grant atomic.Pointer[grant]
	epoch atomic.Uint64
	// reached is set by each call of a controller, and taken back at each loss.
	reached atomic.Bool
	called  chan struct{} // holds one: a controller called
	// seen is the lease's resourceVersion after the last write; of Start's goroutine.
	seen string

	mu     sync.Mutex
	cancel context.CancelFunc // of a running Start
	done   chan struct{}      // closed when that Start has returned
	left   bool
}

// grant is one confirmed renewal: the right to route until a moment.
type grant struct{ until instant }

// NewMembership returns a Membership that holds nothing until Start is called.
// It fails if a required option is missing or the options contradict.
func NewMembership(o MembershipOptions) (*Membership, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	m := &Membership{o: o, now: now, called: make(chan struct{}, 1)}
	m.epoch.Store(1)
	o.Metrics.serve(m)
	return m, nil
}

// Held reports whether the gateway may answer with a route now. Call it just
// before every answer. It takes no lock and allocates nothing.
func (m *Membership) Held() bool {
	g := m.grant.Load()
	return g != nil && m.now().before(g.until)
}

// Remaining returns for how much longer the gateway may answer with routes, on the clock on
// which it is less; 0 if it may not. Like Held it takes no lock.
func (m *Membership) Remaining() time.Duration {
	g := m.grant.Load()
	if g == nil {
		return 0
	}
	return max(m.now().until(g.until), 0)
}

// Holder returns the holder that this gateway writes, or is about to write.
func (m *Membership) Holder() string { return m.holder().String() }

func (m *Membership) holder() Holder {
	return Holder{Instance: m.o.Instance, Epoch: m.epoch.Load()}
}

// Reached tells that a controller has just called: a revoked lease is taken up
// again without waiting.
func (m *Membership) Reached() {
	m.reached.Store(true)
	select {
	case m.called <- struct{}{}:
	default:
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every gateway
// has a lease.
func (*Membership) NeedLeaderElection() bool { return false }
