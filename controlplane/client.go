package controlplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"github.com/sandlane/sandlane/controlplane/controlplanepb"
)

// Defaults of ClientOptions.
const (
	DefaultCallTimeout = time.Second
	DefaultPollTimeout = 5 * time.Second
)

// pingEvery is how often an open connection is tested.
const pingEvery = 10 * time.Second

// maxAnswer is the largest answer taken, in bytes: the activity of about a
// million sandboxes.
const maxAnswer = 128 << 20

// ClientOptions configure a Client. Directory is required.
type ClientOptions struct {
	Directory *Directory
	// CallTimeout is how long a round of fences waits for a gateway; after that it has
	// missed the call, unless it acknowledges late (see revocations). 0 means DefaultCallTimeout.
	CallTimeout time.Duration
	// PollTimeout is how long it may take to say what was in use; the first
	// answer can be large. 0 means DefaultPollTimeout.
	PollTimeout time.Duration
	// TLS says which gateways to talk to. Without it only unix sockets are connected to.
	TLS *MutualTLS
	// Dial are further options of connections.
	Dial []grpc.DialOption
	// Metrics may be nil; use those of the Directory.
	Metrics *ControllerMetrics
	// Log may be nil.
	Log *slog.Logger
}

// Client asks all gateways. It is safe for concurrent use. Close it.
type Client struct {
	o ClientOptions

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	rounds sync.WaitGroup // at most one round runs, and its calls and late ones

	mu      sync.Mutex
	closed  bool                       // guarded by mu
	conns   map[string]*connection     // by address; guarded by mu
	lists   uint64                     // lists of gateways begun so far; guarded by mu
	pending map[fenceKey]*pendingFence // guarded by mu
	waiting []waiter                   // for the next round; guarded by mu
	running bool                       // a round runs; guarded by mu
	late    []*ask                     // acknowledged after their round; guarded by mu
	// searched is when pending was last searched for what may be forgotten; guarded by mu
	searched time.Time

	activity    activity
	revocations revocations
}

// connection is an open connection to one gateway's address.
type connection struct {
	*grpc.ClientConn
	// named is how many lists had begun when a list named the address, or a call
	// took the connection, for the last time. Only a list that began after that can
	// tell that no gateway has the address any more. Guarded by the Client's mu.
	named uint64
}

// NewClient returns a Client; it connects to no gateway yet.
func NewClient(o ClientOptions) (*Client, error) {
	if o.Directory == nil {
		return nil, errors.New("control-plane client: no directory")
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = DefaultCallTimeout
	}
	if o.PollTimeout == 0 {
		o.PollTimeout = DefaultPollTimeout
	}
	if o.Metrics == nil {
		o.Metrics = NewControllerMetrics(nil)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	c := &Client{o: o, conns: map[string]*connection{}, pending: map[fenceKey]*pendingFence{}}
	c.activity.init()
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// Close ends calls in progress with an error and closes all connections. It may
// be called again.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.rounds.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for address, conn := range c.conns {
		conn.Close()
		delete(c.conns, address)
	}
}

// gateway returns a stub for the gateway's address, connecting on first use.
func (c *Client) gateway(g Gateway) (controlplanepb.GatewayClient, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	conn, ok := c.conns[g.Address]
	if !ok {
		transport, err := c.o.transport(g.Address)
		if err != nil {
			return nil, fmt.Errorf("connecting to gateway %s at %s: %w", g.Name, g.Address, err)
		}
		grpcConn, err := grpc.NewClient(g.Address, append(append(dialOptions(), transport), c.o.Dial...)...)
		if err != nil {
			return nil, fmt.Errorf("connecting to gateway %s: %w", g.Name, err)
		}
		conn = &connection{ClientConn: grpcConn}
		c.conns[g.Address] = conn
	}
	conn.named = c.lists
	// A gateway that was restarted must be reached within one call's time.
	conn.ResetConnectBackoff()
	return controlplanepb.NewGatewayClient(conn), nil
}

func dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithNoProxy(), // a gateway's address is its pod's, whatever the environment says of proxies
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 10 * time.Second},
			MinConnectTimeout: time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: time.Second}),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(maxAnswer)),
	}
}

// beginList returns the number of the list of gateways that begins now.
func (c *Client) beginList() (number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists++
	return c.lists
}

// prune closes connections to addresses that no gateway of the list has. Several
// lists run at a time and may end in another order, so a list says nothing of a
// connection that a later one, or a call under way, has taken since it began.
func (c *Client) prune(gateways []Gateway, list uint64) {
	used := make(map[string]bool, len(gateways))
	for _, g := range gateways {
		used[g.Address] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for address, conn := range c.conns {
		switch {
		case used[address]:
			conn.named = c.lists
		case conn.named < list:
			conn.Close()
			delete(c.conns, address)
		}
	}
}

// list returns the gateways that must be asked now.
func (c *Client) list(ctx context.Context) ([]Gateway, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	number := c.beginList()
	gateways, err := c.o.Directory.List(ctx)
	if err != nil {
		return nil, err
	}
	c.prune(gateways, number)
	return gateways, nil
}

// answered checks that an answer is that of the gateway's lease.
func (g Gateway) answered(holder string) error {
	h, err := ParseHolder(holder)
	if err != nil {
		return err
	}
	if !h.answersFor(g.Holder) {
		return fmt.Errorf("%s answered at the address of %s", h, g.Holder)
	}
	return nil
}
