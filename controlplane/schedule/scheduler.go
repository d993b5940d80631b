package schedule

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// Defaults of a PoolScheduler.
const (
	DefaultQueueSize      = 1024
	DefaultReservationTTL = 30 * time.Second
)

// PoolScheduler claims the idle pods of one pool for this gateway. Make it with
// NewPoolScheduler, feed it with Offer and Forget, and call Run once. All
// methods are safe for concurrent use.
type PoolScheduler struct {
	namespace, pool, team string
	client                client.Client
	settings

	series *poolMetrics // of settings.metrics, for this pool

	changed chan struct{} // room for one: the queues have changed
	stop    chan struct{} // closed by Shutdown

	mu           sync.Mutex
	closed       bool // no request is accepted, no goroutine started, any more
	gone         bool // closed because the pool is gone
	waiting      *waiting
	stock        *stock
	poolNotified bool // the pool has the note that claims wait
	running      int  // claims under way, as many as room has
	// expected counts requests that are about to be enqueued for a pod to spare (Expect).
	expected int

	claims sync.WaitGroup // claim, undo, end and notification goroutines; Go under mu while !closed, or from one of them
}

// settings are what Options change.
type settings struct {
	queueSize int
	ttl       time.Duration
	seed      uint64
	metrics   *Metrics
	log       *slog.Logger
	room      *room // shared by the schedulers of a Set
}

// Option changes a default of NewPoolScheduler and NewSet.
type Option func(*settings)

// WithQueueSize bounds the requests that wait for a pod (DefaultQueueSize).
func WithQueueSize(n int) Option { return func(s *settings) { s.queueSize = n } }

// WithReservationTTL bounds how long a pod that was claimed is kept out of the
// queue while the feed still shows it idle (DefaultReservationTTL).
func WithReservationTTL(d time.Duration) Option { return func(s *settings) { s.ttl = d } }

// WithSeed makes this gateway pick at another offset of the queue than gateways
// with other seeds, until it is told its own (Set.SetPickOffset). 0, the default,
// picks the oldest pod.
func WithSeed(seed uint64) Option { return func(s *settings) { s.seed = seed } }

// WithMetrics counts in m, which several schedulers may share. The default
// counts nowhere.
func WithMetrics(m *Metrics) Option { return func(s *settings) { s.metrics = m } }

// WithLogger logs to l instead of slog.Default().
func WithLogger(l *slog.Logger) Option { return func(s *settings) { s.log = l } }

// NewPoolScheduler returns the scheduler of pool ns/name. team owns the pool's
// claims where a request names no tenant; user, if any, is named in logs. c must
// answer reads live, and not throttle by itself (rest.Config QPS
// -1): a write held back in the client counts as one that may have been sent. With a nil c
// every request is answered by ErrNoClient.
func NewPoolScheduler(ns, name, team, user string, c client.Client, opts ...Option) *PoolScheduler {
	s := &PoolScheduler{
		namespace: ns, pool: name, team: team, client: c,
		settings: settings{queueSize: DefaultQueueSize, ttl: DefaultReservationTTL},
		changed:  make(chan struct{}, 1),
		stop:     make(chan struct{}),
	}
	for _, o := range opts {
		o(&s.settings)
	}
	if s.metrics == nil {
		s.metrics = NewMetrics(nil)
	}
	s.series = s.metrics.of(ns, name)
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.room == nil {
		s.room = newRoom()
	}
	s.log = s.log.With("pool", s.String())
	if user != "" {
		s.log = s.log.With("user", user)
	}
	s.waiting = newWaiting(s.queueSize)
	s.stock = newStock(s.ttl, seedOffset(s.seed))
	return s
}

// seedOffset spreads seeds evenly over [0,1); 0 stays 0.
func seedOffset(seed uint64) float64 {
	const golden = 0x9e3779b97f4a7c15
	return float64(seed*golden>>11) / (1 << 53)
}

// setPickOffset tells this gateway that it is number index of `of` gateways, and so its pick
// offset: all begin at equal distances, the first at the oldest pod and the last at the newest.
// Each takes pods on both sides of its offset in proportion, so gateways that claim equally
// many never reach for one pod. A gateway alone takes the oldest first.
func (s *PoolScheduler) setPickOffset(index, of int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stock.pickOffset = pickOffset(index, of)
}

// setCordoned tells which nodes are cordoned; the caller does not change the map any more.
func (s *PoolScheduler) setCordoned(nodes map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stock.setCordoned(nodes)
}

func pickOffset(index, of int) float64 {
	if of < 2 {
		return 0
	}
	return float64(index) / float64(of-1)
}

// String returns the pool as namespace/name.
func (s *PoolScheduler) String() string { return s.namespace + "/" + s.pool }

// Enqueue accepts a request, or returns false, and writes nothing to ResultCh,
// when the queue or its tenant's share of it is full, the scheduler is shut
// down, or there is no ResultCh. Requests are accepted before Run is called, and wait for it.
func (s *PoolScheduler) Enqueue(r *ClaimRequest) bool {
	if r.ResultCh == nil {
		s.log.Error("a ClaimRequest without a ResultCh is not accepted", "sandbox", r.SandboxID)
		return false
	}
	if s.client == nil {
		send(r.ResultCh, ClaimResult{Err: ErrNoClient})
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Tenant == "" {
		r.Tenant = s.team
	}
	if s.closed || !s.waiting.admits(r.Tenant, len(s.stock.queue)) {
		return false
	}
	now := time.Now()
	if r.Ctx == nil {
		r.Ctx = context.Background()
	}
	if r.Deadline.IsZero() {
		r.Deadline = now.Add(DefaultPatience)
	}
	if r.EnqueuedAt.IsZero() {
		r.EnqueuedAt = now
	}
	if r.ClaimID == "" {
		r.ClaimID = NewClaimID()
	}
	e := &entry{ClaimRequest: r, s: s, done: make(chan struct{})}
	s.waiting.push(e, false)
	e.arm(r.Deadline.Sub(now))
	s.notify()
	return true
}

// Offer tells that the feed shows the pod idle. A pod that cannot be claimed is
// forgotten instead. Only a compact record is kept of it.
func (s *PoolScheduler) Offer(pod *corev1.Pod) {
	if v1alpha1.PhaseOf(pod) != v1alpha1.PodIdle || pod.DeletionTimestamp != nil ||
		v1alpha1.Finished(pod) || v1alpha1.RoutableAddress(pod) == "" {
		s.Forget(pod.UID)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && s.stock.offer(pod) {
		s.notify()
	}
}

// Forget tells that the pod has left idle, is not ready, or is gone.
func (s *PoolScheduler) Forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dropped, evicted := s.stock.forget(uid)
	if evicted {
		s.series.evicted.Inc()
	}
	if dropped {
		s.measure()
	}
}

// Stocked reports whether there is a pod to be picked: then a request that waits
// does so for its turn alone.
func (s *PoolScheduler) Stocked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.stock.queue) > 0
}

// Spare reports whether there is a pod for one more request than wait or are expected.
func (s *PoolScheduler) Spare() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spare()
}

// spare is Spare. The mutex is held.
func (s *PoolScheduler) spare() bool { return len(s.stock.queue) > s.waiting.len()+s.expected }

// Expect counts one more request until arrived is called, if there is a pod to spare for
// it; arrived may be called more than once. So of the requests that wait at other pools
// one leaves its queue for each such pod, and not all of them for the first.
func (s *PoolScheduler) Expect() (arrived func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.spare() {
		return nil, false
	}
	s.expected++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.expected--
	}), true
}

// unstocked reports whether no pod is known, ready or not.
func (s *PoolScheduler) unstocked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.stock.pods) == 0
}

// NotifyIdle makes the scheduler look at its queues. Offer and Enqueue do so
// themselves.
func (s *PoolScheduler) NotifyIdle() { s.notify() }

func (s *PoolScheduler) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Run gives pods to requests until ctx is done or Shutdown is called, and
// returns when every request is answered and every claim has settled. Call it
// once.
func (s *PoolScheduler) Run(ctx context.Context) {
	expiry := time.NewTimer(time.Hour)
	defer expiry.Stop()
	for {
		if next := s.dispatch(); !next.IsZero() {
			expiry.Reset(time.Until(next))
		}
		select {
		case <-s.changed:
		case <-expiry.C:
		case <-s.stop:
			s.claims.Wait()
			return
		case <-ctx.Done():
			s.Shutdown()
			return
		}
	}
}

// dispatch matches requests and pods, and returns when the next reservation
// ends. Nothing in it waits.
func (s *PoolScheduler) dispatch() (next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return time.Time{}
	}
	now := time.Now()
	expired, next := s.stock.expire(now)
	s.series.expired.Add(float64(expired))
	for e := s.waiting.first(); e != nil && s.room.has(s.running, now); e = s.waiting.first() {
		if err := e.tooLate(now); err != nil { // perhaps before its timer fires
			e.answer(ClaimResult{Err: err})
			continue
		}
		rec := s.stock.pick(e.Opts.ContainerImages)
		if rec == nil {
			s.tellPool()
			break
		}
		s.waiting.pop(e)
		if !e.dispatched {
			e.dispatched = true
			s.series.dispatch.Observe(now.Sub(e.EnqueuedAt).Seconds())
		}
		s.setRunning(s.running + 1)
		s.claims.Go(func() {
			defer s.claimDone()
			(&attempt{entry: e, rec: rec}).run()
		})
	}
	if s.waiting.len() == 0 {
		s.poolNotified = false
	}
	s.measure()
	return next
}

// claimDone makes room for another claim.
func (s *PoolScheduler) claimDone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setRunning(s.running - 1)
	s.notify()
}

// setRunning notes how many claims are under way. The mutex is held.
func (s *PoolScheduler) setRunning(n int) {
	s.room.change(s.running, n)
	s.running = n
}

// learn takes in how the write of a claim went that was sent then.
func (s *PoolScheduler) learn(sent time.Time, v writes.Verdict) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room.learn(write{sent, now, v, s.waiting.len() > 0 && len(s.stock.queue) > 0})
}

// measure sets the gauges. The mutex is held.
func (s *PoolScheduler) measure() {
	s.series.sizes(len(s.stock.queue), s.waiting.len(), s.stock.reserved())
}

// poolGone makes a later Shutdown answer with ErrPoolGone. The pool's metrics go at once: another scheduler may follow for the name.
func (s *PoolScheduler) poolGone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && !s.gone {
		s.gone = true
		s.series.drop()
	}
}

// Shutdown accepts no more requests, answers those that wait with ErrShutdown,
// and returns when claims under way are answered and settled, which their own
// timeouts bound. It may be called again, and without Run.
func (s *PoolScheduler) Shutdown() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		for e := s.waiting.first(); e != nil; e = s.waiting.first() {
			e.answer(ClaimResult{Err: s.shutdownError()})
		}
		close(s.stop)
		if !s.gone {
			s.series.drop()
		}
	}
	s.mu.Unlock()
	s.claims.Wait()
}
