package extproc

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
)

// fixture is a server with fakes behind every interface. The route cache is the
// real one.
type fixture struct {
	*Server
	cache    *routecache.Cache
	resolver *fakeResolver
	act      *fakeActivator
	pools    fakePools
	lease    *fakeLease
	activity *fakeActivity
	holds    *fakeHolds
	metrics  *prometheus.Registry
}

func newFixture(t testing.TB, change ...func(*Options)) *fixture {
	t.Helper()
	f := &fixture{
		cache:    routecache.New(0),
		resolver: &fakeResolver{index: map[string]routing.Answer{}, live: map[string]routing.Answer{}},
		act:      &fakeActivator{},
		pools: fakePools{
			"default/echo": {Access: v1alpha1.AccessPublic}, "team/closed": nil,
			"team/keyed": {Access: v1alpha1.AccessAPIKey, IDPrefix: "keyed-"},
			"team/token": {Access: v1alpha1.AccessAPIKey, Reach: v1alpha1.ReachToken},
			"team/open":  {Access: v1alpha1.AccessAPIKey, Reach: v1alpha1.ReachPublic},
		},
		lease:    &fakeLease{},
		activity: &fakeActivity{uses: map[string]*routecache.ClaimUse{}, parked: map[string]int{}, resolving: map[string]int{}, ended: map[string]time.Time{}},
		holds:    &fakeHolds{},
		metrics:  prometheus.NewRegistry(),
	}
	f.lease.held.Store(true)
	o := Options{
		Socket: t.TempDir() + "/extproc.sock", Cache: f.cache, Resolver: f.resolver, Activator: f.act, Keys: fakeKeys{},
		Pools: f.pools, Tokens: fakeTokens{}, Lease: f.lease, Activity: f.activity, Holds: f.holds, Room: &fakeRoom{waiters: 1000},
		Registerer: f.metrics, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	for _, c := range change {
		c(&o)
	}
	s, err := NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	f.Server = s
	return f
}

// fakeRoom has so many places to wait, and sends every request on unless it is full.
type fakeRoom struct {
	mu      sync.Mutex
	waiters int
	full    bool
	waits   []string // namespace, ID, and "keyed" with a key, of each that asked for a place
	opened  atomic.Int32
}

func (f *fakeRoom) Wait(namespace, id string, keyed bool) (leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	said := namespace + "/" + id
	if keyed {
		said += " keyed"
	}
	f.waits = append(f.waits, said)
	if f.waiters == 0 {
		return nil, routing.ErrParkingFull
	}
	f.waiters--
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.waiters++
	}, nil
}

func (f *fakeRoom) Open(*routecache.Route) bool {
	f.opened.Add(1)
	return !f.full
}

func (f *fakeRoom) Unsent(*routecache.Route) { f.opened.Add(-1) }

func withDefaultPool(o *Options) {
	o.FirstRequestPool = types.NamespacedName{Namespace: "default", Name: "echo"}
}

func testRoute(id string) *routecache.Route {
	return &routecache.Route{
		SandboxID: id, Pool: routecache.PoolOf("default", "echo"), ClaimID: "claim-" + id, PodUID: "uid-" + id,
		Addr: netip.MustParseAddr("198.18.0.7"), PodRV: 10,
	}
}

func running(r *routecache.Route) routing.Answer {
	return routing.Answer{State: routing.Running, Route: r, Namespace: r.InPool().Namespace, Pool: r.InPool().Name, Private: r.Private}
}

// put makes the sandbox a cache hit.
func (f *fixture) put(t testing.TB, r *routecache.Route) {
	t.Helper()
	c := *r
	c.Use = f.activity.ClaimUse(r.SandboxID, r.ClaimID)
	if !f.cache.Put(f.cache.Begin(r.SandboxID), &c) {
		t.Fatal("Put refused")
	}
}

// ask sends one request through Process and returns what was sent.
func (f *fixture) ask(t testing.TB, headers ...string) *answer {
	t.Helper()
	s := newStream(t.Context(), headers...)
	if err := f.Process(s); err != nil {
		t.Fatalf("Process(%v): %v", headers, err)
	}
	return s.answer(t)
}

// host addresses a request to a sandbox by its host.
func host(id string) []string {
	return []string{":authority", "8000-" + id + ".localhost", ":path", "/"}
}

// named addresses a request to a sandbox by routing headers, with more headers.
func named(id string, more ...string) []string {
	return append([]string{":authority", "localhost", ":path", "/", "x-sandbox-id", id, "x-sandbox-port", "8000"}, more...)
}

// answer is what a client and Envoy would see.
type answer struct {
	waited      bool // an override_message_timeout came first
	destination string
	port        float64
	claim       string
	path        string // rewritten path
	cookie      string // the cookies that are left, "none" if the header is removed
	status      int    // of an immediate answer
	contentType string
	retryAfter  string
	raw         string
	body        body
	final       bool
	cause       string // for the log
}

// fakeStream is one ext_proc stream. onSend runs before each Send returns.
type fakeStream struct {
	grpc.ServerStream
	ctx    context.Context
	req    *extprocv3.ProcessingRequest
	recvd  int
	sent   []*extprocv3.ProcessingResponse
	onSend func(*extprocv3.ProcessingResponse) error
}

func newStream(ctx context.Context, headers ...string) *fakeStream {
	m := &corev3.HeaderMap{}
	for i := 0; i+1 < len(headers); i += 2 {
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: headers[i], RawValue: []byte(headers[i+1])})
	}
	return &fakeStream{ctx: ctx, req: &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: m}},
	}}
}

func (s *fakeStream) Context() context.Context { return s.ctx }

// Recv would decode into message structs.
func (s *fakeStream) Recv() (*extprocv3.ProcessingRequest, error) {
	return nil, errors.New("the server receives by RecvMsg")
}

func (s *fakeStream) RecvMsg(into any) error {
	if s.recvd++; s.req == nil {
		return io.EOF
	}
	wire, err := proto.Marshal(s.req)
	if err != nil {
		return err
	}
	return newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(wire)}, into)
}

func (s *fakeStream) Send(r *extprocv3.ProcessingResponse) error { return s.SendMsg(r) }

func (s *fakeStream) SendMsg(m any) error {
	wire, err := newCodec().Marshal(m) // what Envoy gets
	if err != nil {
		return err
	}
	r := &extprocv3.ProcessingResponse{}
	if err := proto.Unmarshal(wire.Materialize(), r); err != nil {
		return err
	}
	s.sent = append(s.sent, r)
	if s.onSend != nil {
		return s.onSend(r)
	}
	return nil
}

func (s *fakeStream) answer(t testing.TB) *answer {
	t.Helper()
	if s.recvd != 1 {
		t.Errorf("%d Recv, want one", s.recvd)
	}
	a := &answer{}
	if len(s.sent) > 0 && s.sent[0].GetOverrideMessageTimeout() != nil {
		a.waited = true
		s.sent = s.sent[1:]
	}
	if len(s.sent) != 1 {
		t.Fatalf("%d answers, want one", len(s.sent))
	}
	r := s.sent[0]
	f := r.GetDynamicMetadata().GetFields()[MetadataNamespace].GetStructValue().GetFields()
	a.destination = f[MetadataDestination].GetStringValue()
	a.port, a.claim, a.final = f[MetadataPort].GetNumberValue(), f[metadataClaim].GetStringValue(), f[MetadataFinal] != nil
	a.cause = f[metadataCause].GetStringValue()
	for _, h := range r.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
		switch h.Header.Key {
		case ":path":
			a.path = string(h.Header.RawValue)
		case "cookie":
			a.cookie = string(h.Header.RawValue)
		default:
			t.Errorf("the answer sets %s, which mutation_rules do not allow", h.Header.Key)
		}
	}
	for _, name := range r.GetRequestHeaders().GetResponse().GetHeaderMutation().GetRemoveHeaders() {
		if name != "cookie" {
			t.Errorf("the answer removes %s, which mutation_rules do not allow", name)
		}
		a.cookie = "none"
	}
	im := r.GetImmediateResponse()
	if im == nil {
		if a.destination == "" {
			t.Fatalf("neither a destination nor an immediate answer: %v", r)
		}
		return a
	}
	a.status, a.raw = int(im.GetStatus().GetCode()), string(im.GetBody())
	for _, h := range im.GetHeaders().GetSetHeaders() {
		switch h.Header.Key {
		case "content-type":
			a.contentType = string(h.Header.RawValue)
		case "retry-after":
			a.retryAfter = string(h.Header.RawValue)
		default:
			t.Errorf("immediate answer sets %s, which mutation_rules do not allow", h.Header.Key)
		}
	}
	if !a.final {
		t.Error("immediate answer without final metadata")
	}
	if a.contentType == contentJSON {
		if err := json.Unmarshal([]byte(a.raw), &a.body); err != nil {
			t.Errorf("body %q: %v", a.raw, err)
		}
		if a.body.Code != a.status {
			t.Errorf("body code %d, status %d", a.body.Code, a.status)
		}
	}
	return a
}

type fakeResolver struct {
	mu          sync.Mutex
	index, live map[string]routing.Answer
	liveErr     error
	lookups     int
	callers     []string // of each live read
	reads       int
	onRead      func(context.Context) error
}

func (r *fakeResolver) Lookup(id string) routing.Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lookups++
	return r.index[id]
}

func (r *fakeResolver) Resolve(ctx context.Context, id, caller string) (routing.Answer, error) {
	r.mu.Lock()
	r.reads++
	r.callers = append(r.callers, caller)
	res, err, hook := r.live[id], r.liveErr, r.onRead
	r.mu.Unlock()
	if hook != nil {
		if err := hook(ctx); err != nil {
			return routing.Answer{}, err
		}
	}
	return res, err
}

func (r *fakeResolver) setIndex(id string, res routing.Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.index[id] = res
}

type fakeActivator struct {
	mu    sync.Mutex
	calls []routing.Request
	do    func(context.Context, routing.Request) error
}

func (a *fakeActivator) Activate(ctx context.Context, r routing.Request) error {
	a.mu.Lock()
	a.calls = append(a.calls, r)
	do := a.do
	a.mu.Unlock()
	if do == nil {
		return routing.ErrNoCapacity
	}
	return do(ctx, r)
}

type fakeLease struct{ held atomic.Bool }

func (l *fakeLease) Held() bool { return l.held.Load() }

type fakeActivity struct {
	mu     sync.Mutex
	uses   map[string]*routecache.ClaimUse
	parked map[string]int
	// resolving counts requests that wait for a live read.
	resolving map[string]int
	ended     map[string]time.Time
	onEnd     func()
}

func (a *fakeActivity) Park(id string) func() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parked[id]++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.parked[id]--
	}
}

func (a *fakeActivity) isParked(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.parked[id] > 0
}

func (a *fakeActivity) ClaimUse(id, claim string) *routecache.ClaimUse {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.uses[id+"/"+claim]
	if s == nil {
		s = &routecache.ClaimUse{}
		a.uses[id+"/"+claim] = s
	}
	return s
}

func (a *fakeActivity) StreamEnded(id, claim string, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended[id+"/"+claim] = at
	if a.onEnd != nil {
		a.onEnd()
	}
}
