package controlplane

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/test/bubble"
)

// simulation is a controller and its gateways in one synctest bubble: the real
// Membership, Server, Directory and Client over an API server and a network
// that can fail.
type simulation struct {
	t         *testing.T
	api       *fakeAPI
	pods      *fakePods
	directory *Directory
	client    *Client
	unwatch   func()        // stops the directory's watch
	gateways  ServerOptions // of each gateway's server: TLS and Log

	mu        sync.Mutex
	listeners map[string]*bufconn.Listener // by address
	cut       map[string]bool              // addresses that the controller cannot reach
	mute      bool                         // the controller's writes fail, and may be applied later
	ended     uint64                       // fences of sandboxes that ended meanwhile
	closers   []func()
}

func simulate(t *testing.T, test func(*testing.T, *simulation)) {
	t.Helper()
	simulateWith(t, ServerOptions{}, ClientOptions{}, test)
}

// simulateWith runs gateways and a controller with some further options.
func simulateWith(t *testing.T, gateways ServerOptions, controller ClientOptions, test func(*testing.T, *simulation)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		s := &simulation{t: t, api: newFakeAPI(), pods: &fakePods{}, gateways: gateways, listeners: map[string]*bufconn.Listener{}, cut: map[string]bool{}}
		s.directory = s.newDirectory()
		s.unwatch = s.directory.watch(t)
		s.closers = append(s.closers, func() { s.unwatch() })
		controller.Directory, controller.Dial = s.directory, append(controller.Dial, grpc.WithContextDialer(s.dial))
		client, err := NewClient(controller)
		if err != nil {
			t.Fatal(err)
		}
		s.client = client
		s.closers = append(s.closers, client.Close)
		defer func() {
			for i := len(s.closers) - 1; i >= 0; i-- {
				s.closers[i]()
			}
		}()
		test(t, s)
	})
}

// newDirectory is what a new controller knows.
func (s *simulation) newDirectory() *Directory {
	s.t.Helper()
	d, err := NewDirectory(DirectoryOptions{Leases: controllerLeases{s.api, s}, Pods: s.pods})
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// controllerLeases are the leases as the controller has them.
type controllerLeases struct {
	*fakeAPI
	s *simulation
}

func (l controllerLeases) Patch(ctx context.Context, name string, t types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) (*coordinationv1.Lease, error) {
	if l.s.isMute() {
		return nil, errAway
	}
	return l.fakeAPI.Patch(ctx, name, t, data, o, sub...)
}

func (l controllerLeases) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	if l.s.isMute() {
		return nil, errAway
	}
	return l.fakeAPI.Create(ctx, lease, o)
}

func (l controllerLeases) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	if l.s.isMute() {
		return errAway
	}
	return l.fakeAPI.Delete(ctx, name, o)
}

func (s *simulation) isMute() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mute
}

func (s *simulation) setMute(mute bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mute = mute
}

func (s *simulation) dial(ctx context.Context, address string) (net.Conn, error) {
	address = path.Base(address)
	s.mu.Lock()
	l, cut := s.listeners[address], s.cut[address]
	s.mu.Unlock()
	if cut {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if l == nil {
		return nil, errors.New("connection refused")
	}
	return l.DialContext(ctx)
}

// cutOff makes an address unreachable for the controller, also over
// connections that are open.
func (s *simulation) cutOff(name string, cut bool) {
	s.mu.Lock()
	s.cut[name] = cut
	s.mu.Unlock()
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	for address, conn := range s.client.conns {
		if strings.HasSuffix(address, name) {
			conn.Close()
			delete(s.client.conns, address)
		}
	}
}

// gateway is one gateway process.
type gateway struct {
	*member
	s        *simulation
	fences   *fakeFencer
	use      *fakeActivity
	demand   fakeDemand
	releases fakeReleaser
	quiets   fakePauseEnforcer
	service  *Server
	server   context.CancelFunc
	serving  chan error
}

// run starts a gateway process, or a successor under the same name.
func (s *simulation) run(name, instance string) *gateway {
	s.t.Helper()
	g := s.listen(name, instance)
	g.start(s.t)
	g.wantHeld(s.t, true, name+" starting")
	return g
}

// listen starts a gateway's server only.
func (s *simulation) listen(name, instance string) *gateway {
	s.t.Helper()
	g := &gateway{s: s, fences: &fakeFencer{}, use: &fakeActivity{report: ActivityReport{Source: instance, Known: true}}, serving: make(chan error, 1)}
	g.member = newMember(s.t, s.api, func(o *MembershipOptions) {
		o.Name, o.Instance, o.Address = name, instance, "unix:///"+name
	})
	l := bufconn.Listen(1 << 20)
	server, err := NewServer(ServerOptions{
		Listener: l, Member: g.Membership, Fencer: g.fences, Activity: g.use, PauseEnforcer: &g.quiets, Demand: &g.demand, Releaser: &g.releases,
		PickOffset: func(index, of int) { g.use.placedAt(index, of) },
		TLS:        s.gateways.TLS, Log: s.gateways.Log,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	g.service = server
	var ctx context.Context
	ctx, g.server = context.WithCancel(s.t.Context())
	go func() { g.serving <- server.Start(ctx) }()
	s.mu.Lock()
	s.listeners[name] = l
	s.mu.Unlock()
	s.closers = append(s.closers, g.kill)
	return g
}

// kill ends the process without a clean stop.
func (g *gateway) kill() {
	if g.server == nil {
		return
	}
	g.server()
	if err := <-g.serving; err != nil {
		g.s.t.Errorf("server returned %v", err)
	}
	g.server = nil
	if g.cancel != nil {
		g.stop(g.s.t)
	}
}

type fakeFencer struct {
	mu    sync.Mutex
	hang  bool
	acked map[uint64]bool // by resourceVersion
	takes time.Duration   // to acknowledge
	calls [][]routecache.Fence
	times []time.Time // when each of the calls came
}

func (f *fakeFencer) Fence(ctx context.Context, fences []routecache.Fence) error {
	f.mu.Lock()
	hang, takes := f.hang, f.takes
	if len(fences) > 0 {
		f.calls, f.times = append(f.calls, fences), append(f.times, time.Now())
	}
	f.mu.Unlock()
	if takes > 0 && !backoff.Sleep(ctx, takes) {
		return ctx.Err()
	}
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range fences {
		if f.acked == nil {
			f.acked = map[uint64]bool{}
		}
		f.acked[one.RV] = true
	}
	return nil
}

func (f *fakeFencer) acknowledged(rv uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.acked[rv]
}

func (f *fakeFencer) setHang(hang bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hang = hang
}

func (f *fakeFencer) asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.calls)
}

// fakeReleaser answers what it is told to, after doing what it is told to.
type fakeReleaser struct {
	mu     sync.Mutex
	asked  [][]Release
	answer func(ctx context.Context) (inUse []string, known bool)
}

func (f *fakeReleaser) Prepare(ctx context.Context, releases []Release) (inUse []string, known bool) {
	f.mu.Lock()
	f.asked = append(f.asked, releases)
	answer := f.answer
	f.mu.Unlock()
	if answer == nil {
		return nil, true
	}
	return answer(ctx)
}

func (f *fakeReleaser) set(answer func(ctx context.Context) ([]string, bool)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// fakeDemand says what it is told to.
type fakeDemand struct {
	mu    sync.Mutex
	pools []PoolDemand
	asked int
}

func (f *fakeDemand) PoolDemand() []PoolDemand {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return f.pools
}

func (f *fakeDemand) set(pools ...PoolDemand) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pools = pools
}

func (f *fakeDemand) polls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

var addr1 = netip.MustParseAddr("198.18.0.7")

// wantUnanswered checks which gateway the error names; "" wants no error.
func (s *simulation) wantUnanswered(err error, want, when string) {
	s.t.Helper()
	var u *UnansweredError
	got := ""
	switch {
	case errors.As(err, &u):
		got = strings.Join(u.Gateways, " ")
	case err != nil:
		got = err.Error()
	}
	if got != want {
		s.t.Fatalf("%s: unanswered by %q, want %q", when, got, want)
	}
}

// fence asks once for a fence of addr1.
func (s *simulation) fence(rv uint64) error { return s.client.Fence(s.t.Context(), addr1, rv) }

// fenceUntilDone asks again and again, as a reconciler would.
func (s *simulation) fenceUntilDone(rv uint64, limit time.Duration) time.Duration {
	s.t.Helper()
	for begin := time.Now(); ; after(3 * time.Second) {
		err := s.fence(rv)
		if err == nil {
			return time.Since(begin)
		}
		if time.Since(begin) > limit {
			s.t.Fatalf("still unanswered after %v: %v", limit, err)
		}
	}
}
