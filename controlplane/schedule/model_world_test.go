package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// world is where a model runs: an API server, and how time passes there.
type world interface {
	pace() pace
	// through is the API server as schedulers reach it: answer decides each call. truth
	// reaches it without faults.
	through(answer func(call) error) client.Client
	truth() client.Client
	namespace() string
	// idle makes an idle pod. remove deletes one and reports whether it was there.
	idle(name string)
	remove(name string) bool
	// pods are all there are now.
	pods() []*corev1.Pod
	// watch is a new view of the pods for one scheduler; nothing is shown yet.
	watch() view
	// pause lets happen what needs no time, where that can be told.
	pause()
	// until waits until done, or for so long that it should be.
	until(done func() bool)
	// calm ends what troubles the world has of its own.
	calm()
	// notes are further faults that the request has met, by name.
	notes(q *asked) []string
}

// pace is how long things take in a world.
type pace struct {
	slow, late, busy, ttl time.Duration
	deadlines, waits      []time.Duration
	shown                 int // changes at most that are shown at a time
	// slack is how late an answer, or news of a client that has left, may be.
	slack time.Duration
}

// view is one scheduler's watch. What has changed waits until it is shown.
type view interface {
	// show shows up to n changes to s; relist all there is, anew.
	show(n int, s *PoolScheduler)
	relist(s *PoolScheduler)
	behind() bool
	stop()
}

// model is a pool with three schedulers, whose views lag until they are delivered,
// and what is known of every request from outside.
type model struct {
	world
	pace  pace
	total *tally

	mu         sync.Mutex // guards what follows
	faults     []int
	calls      int
	calm       bool
	busy       time.Time
	afterRead  map[string][]func() error
	owner      map[string]*asked // the request that last bound a pod
	broken     []string
	claimed    map[types.UID]string // the claim that a pod was first seen with
	claimedPod map[string]types.UID // and the pod, by claim

	all        []*asked
	schedulers []*crashable
	crashed    sync.WaitGroup
	lates      sync.WaitGroup // writes whose clients have given up
	made       int            // pods
}

// asked is one request, for a sandbox of its own.
type asked struct {
	*ClaimRequest
	of     *crashable
	leave  context.CancelFunc
	faults map[string]bool

	// following is held while another gateway sends this request's claim, or finds it
	// invalid: then never, which it guards, is set.
	following sync.Mutex
	never     bool

	// The model's mutex guards these.
	binding  *corev1.Pod // what its Sandbox's binding names
	ended    bool
	left     time.Time // when its client did; zero: it has not
	answered []ClaimResult
	at       time.Time
}

// crashable is one gateway's scheduler and what it has seen. dead makes all that
// it still does vain.
type crashable struct {
	*PoolScheduler
	dead atomic.Bool
	view view
	done chan struct{}
}

// mortal is the client of a process that may be dead.
type mortal struct {
	client.Client
	of *crashable
}

// errDead ends what a dead process does: it goes on after no other error.
var errDead = statusError(http.StatusForbidden, metav1.StatusReasonForbidden, nil)

func (c mortal) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if c.of.dead.Load() {
		return errDead
	}
	return c.Client.Patch(ctx, o, p, opts...)
}

func (c mortal) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if c.of.dead.Load() {
		return errDead
	}
	return c.Client.Get(ctx, k, o, opts...)
}

func newModel(w world, faults []int, total *tally) *model {
	m := &model{
		world: w, pace: w.pace(), total: total, faults: faults,
		afterRead: map[string][]func() error{}, owner: map[string]*asked{},
		claimed: map[types.UID]string{}, claimedPod: map[string]types.UID{},
	}
	c := w.through(m.answer)
	for i := range 3 {
		m.schedulers = append(m.schedulers, m.start(i, c))
	}
	return m
}

func (m *model) start(i int, c client.Client) *crashable {
	s := &crashable{view: m.watch(), done: make(chan struct{})}
	s.PoolScheduler = NewPoolScheduler(m.namespace(), "pool", "", "", mortal{c, s},
		WithSeed(uint64(i)), WithReservationTTL(m.pace.ttl), WithLogger(slog.New(slog.DiscardHandler)))
	s.setPickOffset(i, 3)
	go func() { defer close(s.done); s.Run(context.Background()) }()
	s.view.relist(s.PoolScheduler)
	return s
}

// breakf notes a broken invariant.
func (m *model) breakf(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken = append(m.broken, fmt.Sprintf(format, args...))
}

func (m *model) whatBroke() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.broken)
}

// met notes that a request met a fault. The mutex is held.
func (m *model) met(q *asked, fault string) {
	if q != nil && len(q.answered) == 0 {
		q.faults[fault] = true
	}
}

func (m *model) step(c command) {
	s := m.schedulers[c.A%len(m.schedulers)]
	switch c.Op {
	case "claim":
		m.claim(s, c.B)
	case "refill":
		for range 1 + c.A%3 {
			m.made++
			m.idle(fmt.Sprintf("p%03d", m.made))
		}
	case "wait":
		<-time.After(m.pace.waits[c.A%len(m.pace.waits)])
	case "deliver":
		s.view.show(1+c.B%m.pace.shown, s.PoolScheduler)
	case "drop watch":
		m.relist(s)
	case "crash":
		m.crash(c.A % len(m.schedulers))
	case "busy":
		m.mu.Lock()
		m.busy = time.Now().Add(m.pace.busy)
		m.mu.Unlock()
	case "delete pod":
		if q := m.pick(c.A, c.B%2 == 0); q != nil {
			if pod := m.boundTo(q); pod != nil {
				m.deletePod(pod.Name)
			}
		}
	default:
		if q := m.pick(c.A, c.B%2 == 0); q != nil {
			m.about(q, c.Op)
		}
	}
}

// pick returns one of the last requests, if wanted of those whose claim is under
// way.
func (m *model) pick(n int, claiming bool) *asked {
	m.mu.Lock()
	defer m.mu.Unlock()
	var some []*asked
	for _, q := range m.all {
		if !claiming || q.binding != nil && len(q.answered) == 0 {
			some = append(some, q)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[max(0, len(some)-1-n%12)]
}

// about does something to a request's sandbox from outside.
func (m *model) about(q *asked, op string) {
	m.mu.Lock()
	binding, ended := q.binding, q.ended
	switch op {
	case "cancel":
		m.met(q, "client left")
		if len(q.answered) == 0 && q.left.IsZero() {
			q.left = time.Now()
		}
	case "end":
		m.met(q, "sandbox ended")
		q.ended = true
	case "follow":
		if binding != nil && !q.ended {
			m.met(q, "a follower claimed")
		}
	}
	m.mu.Unlock()
	switch {
	case op == "cancel":
		q.leave()
	case binding == nil:
	case op == "end":
		m.stop(m.claimOf(q, binding))
	case op == "follow" && !ended:
		m.follow(q, binding)
	}
}

func (m *model) claimOf(q *asked, binding *corev1.Pod) Claim {
	return Claim{
		SandboxID: q.SandboxID, ClaimID: BindingOf(binding).ClaimID,
		Namespace: m.namespace(), PodName: binding.Name, PodUID: binding.UID, Phase: v1alpha1.PodRunning,
	}
}

// follow is a gateway that saw the binding and sends the claim as well.
func (m *model) follow(q *asked, binding *corev1.Pod) {
	q.following.Lock()
	defer q.following.Unlock()
	if !q.never {
		_, _ = ApplyClaim(context.Background(), m.truth(), m.claimOf(q, binding))
	}
}

// stop is what reconcilers/sandbox does to the pod of a sandbox that has ended,
// whether the claim is on it or not.
func (m *model) stop(claim Claim) {
	for range 5 { // it may land between the two
		for _, stop := range []func(context.Context, client.Client, Claim) error{StopClaimed, StopUnclaimed} {
			if err := stop(context.Background(), m.truth(), claim); !errors.Is(err, ErrRefused) {
				return
			}
		}
	}
}

func (m *model) deletePod(name string) {
	there := m.remove(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if there {
		m.met(m.owner[name], "pod deleted")
	}
}

func (m *model) claim(s *crashable, n int) {
	ctx, leave := context.WithCancel(context.Background())
	q := &asked{of: s, leave: leave, faults: map[string]bool{}}
	q.ClaimRequest = &ClaimRequest{
		Ctx: ctx, SandboxID: fmt.Sprint("s", len(m.all)), Tenant: fmt.Sprint(n % 3),
		Deadline: time.Now().Add(m.pace.deadlines[n%len(m.pace.deadlines)]),
		ResultCh: newResults(4),
		Bind:     func(_ context.Context, pod *corev1.Pod) error { return m.bind(q, pod) },
		Unbind:   func(_ context.Context, pod *corev1.Pod) error { return m.unbind(q, pod) },
	}
	if n%7 == 0 {
		q.Opts.ContainerImages = map[string]string{"main": "c"}
	}
	if s.view.behind() {
		q.faults["watch behind"] = true
	}
	if !s.Enqueue(q.ClaimRequest) {
		m.breakf("request %s was refused by a queue of %d", q.SandboxID, DefaultQueueSize)
		return
	}
	m.all = append(m.all, q)
	go m.await(q)
}

// await notes when the answer comes. A crashed scheduler's goes nowhere.
func (m *model) await(q *asked) {
	res := <-resultsOf(q.ClaimRequest)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !q.of.dead.Load() {
		q.answered, q.at = append(q.answered, res), time.Now()
	}
}

func (m *model) bind(q *asked, pod *corev1.Pod) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case q.of.dead.Load():
		return errDead
	case q.ended:
		return writes.ErrStale
	case !q.left.IsZero() && time.Since(q.left) >= m.pace.slack:
		m.broken = append(m.broken, fmt.Sprintf("request %s has left and binds %s", q.SandboxID, pod.Name))
	}
	q.binding, m.owner[pod.Name] = pod.DeepCopy(), q
	return nil
}

func (m *model) unbind(q *asked, pod *corev1.Pod) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if q.of.dead.Load() || q.ended || q.binding == nil || BindingOf(q.binding).ClaimID != BindingOf(pod).ClaimID {
		return nil
	}
	q.binding = nil
	return nil
}

// relist is a watch that broke: everything is shown anew.
func (m *model) relist(s *crashable) {
	m.mu.Lock()
	for _, q := range m.all {
		if q.of == s {
			m.met(q, "watch dropped")
		}
	}
	m.mu.Unlock()
	s.view.relist(s.PoolScheduler)
}

// crash ends a scheduler's process and starts another.
func (m *model) crash(i int) {
	s := m.schedulers[i]
	m.mu.Lock()
	for _, q := range m.all {
		if q.of == s {
			m.met(q, "scheduler crashed")
		}
	}
	s.dead.Store(true)
	m.mu.Unlock()
	m.bury(s)
	m.pause()
	m.schedulers[i] = m.start(i, s.client.(mortal).Client)
}

// bury waits, elsewhere, for what a scheduler that is over still does in vain.
func (m *model) bury(s *crashable) {
	m.crashed.Go(func() { s.Shutdown(); <-s.done; s.view.stop() })
}
