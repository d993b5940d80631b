package schedule

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// model is a pool on a fake API server with three schedulers, whose views lag
// until they are delivered, and what is known of every request from outside.
type model struct {
	t     *testing.T
	api   *fakeAPI
	total *tally

	mu         sync.Mutex // guards what follows
	faults     []int
	calls      int
	calm       bool
	busy       time.Time
	afterRead  map[string][]func() error
	owner      map[string]*asked // who last bound a pod
	broken     []string
	claimed    map[types.UID]string // the claim that a pod was first seen with
	claimedPod map[string]types.UID // and the pod, by claim

	all        []*asked
	schedulers []*crashable
	crashed    sync.WaitGroup
	pods       int
}

// asked is one request, for a sandbox of its own.
type asked struct {
	*ClaimRequest
	of     *crashable
	leave  context.CancelFunc
	faults map[string]bool

	// The model's mutex guards these.
	binding  *corev1.Pod // what its Sandbox's binding names
	ended    bool
	left     bool
	answered []ClaimResult
	at       time.Time
}

// crashable is one gateway's scheduler and what it has seen. dead makes all that
// it still does vain.
type crashable struct {
	*PoolScheduler
	dead atomic.Bool
	seen map[types.UID]string
	done chan struct{}
}

// mortal is the client of a process that may be dead.
type mortal struct {
	client.Client
	of *crashable
}

var errDead = &net.OpError{Op: "dial", Err: errors.New("the process is dead")}

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

func newModel(t *testing.T, faults []int, total *tally) *model {
	m := &model{
		t: t, api: newFakeAPI(), total: total, faults: faults,
		afterRead: map[string][]func() error{}, owner: map[string]*asked{},
		claimed: map[types.UID]string{}, claimedPod: map[string]types.UID{},
	}
	m.api.answers(m.answer)
	for i := range 3 {
		m.schedulers = append(m.schedulers, m.start(i))
	}
	return m
}

func (m *model) start(i int) *crashable {
	s := &crashable{seen: map[types.UID]string{}, done: make(chan struct{})}
	s.PoolScheduler = NewPoolScheduler("ns", "pool", "", "", mortal{m.api, s}, WithSeed(uint64(i)))
	s.place(i, 3)
	go func() { defer close(s.done); s.Run(context.Background()) }()
	m.deliver(s, 1<<20)
	return s
}

// breakf notes a broken invariant.
func (m *model) breakf(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken = append(m.broken, fmt.Sprintf(format, args...))
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
			m.pods++
			m.api.idle(fmt.Sprintf("p%03d", m.pods))
		}
	case "wait":
		time.Sleep([]time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, 6 * time.Second, 31 * time.Second}[c.A%5])
	case "deliver":
		m.deliver(s, 1+c.B%8)
	case "drop watch":
		m.relist(s)
	case "crash":
		m.crash(c.A % len(m.schedulers))
	case "busy":
		m.mu.Lock()
		m.busy = time.Now().Add(3 * time.Second)
		m.mu.Unlock()
	case "delete pod":
		if q := m.pick(c.A, c.B%2 == 0); q != nil && q.binding != nil {
			m.deletePod(q.binding.Name)
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
	binding := q.binding
	switch op {
	case "cancel":
		m.met(q, "client left")
		q.left = len(q.answered) == 0
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
		m.stop(binding)
	case op == "follow" && !q.ended:
		_, _ = ApplyClaim(context.Background(), noFaults{m.api}, Claim{
			SandboxID: q.SandboxID, ClaimID: BindingOf(binding).ClaimID,
			Namespace: "ns", PodName: binding.Name, PodUID: binding.UID, Phase: v1alpha1.PodRunning,
		})
	}
}

// stop is what reconcilers/sandbox does to the pod of a sandbox that has ended.
func (m *model) stop(binding *corev1.Pod) {
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	pod := m.api.pods[binding.Name]
	if pod == nil || pod.UID != binding.UID {
		return
	}
	claim := pod.Annotations[v1alpha1.AnnotationClaim]
	if claim == "" || claim == BindingOf(binding).ClaimID {
		pod.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodStopping)
	}
}

func (m *model) deletePod(name string) {
	m.api.mu.Lock()
	_, there := m.api.pods[name]
	delete(m.api.pods, name)
	m.api.mu.Unlock()
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
		Deadline: time.Now().Add([]time.Duration{500 * time.Millisecond, 3 * time.Second, 12 * time.Second, 40 * time.Second}[n%4]),
		ResultCh: make(chan ClaimResult, 4),
		Bind:     func(_ context.Context, pod *corev1.Pod) error { return m.bind(q, pod) },
		Unbind:   func(_ context.Context, pod *corev1.Pod) error { return m.unbind(q, pod) },
	}
	if n%7 == 0 {
		q.Opts.ContainerImages = map[string]string{"main": "c"}
	}
	if m.behind(s) {
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
	res := <-q.ResultCh
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
		return ErrBindLost
	case q.left:
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

// noFaults is the API server as others reach it.
type noFaults struct{ *fakeAPI }

func (n noFaults) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.apply(o.(*corev1.Pod), data)
}

func (n noFaults) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	pod := n.pods[key.Name]
	if pod == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, key.Name)
	}
	pod.DeepCopyInto(o.(*corev1.Pod))
	return nil
}

// digest tells states of a pod apart.
func digest(pod *corev1.Pod) string {
	return pod.Labels[v1alpha1.LabelPhase] + pod.Annotations[v1alpha1.AnnotationClaim]
}

// changes are the pods whose present state the scheduler has not seen; nil for
// one that is gone.
func (m *model) changes(s *crashable) map[types.UID]*corev1.Pod {
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	out := map[types.UID]*corev1.Pod{}
	for uid := range s.seen {
		out[uid] = nil
	}
	for _, pod := range m.api.pods {
		if s.seen[pod.UID] == digest(pod) {
			delete(out, pod.UID)
		} else {
			out[pod.UID] = pod.DeepCopy()
		}
	}
	return out
}

func (m *model) behind(s *crashable) bool { return len(m.changes(s)) > 0 }

// deliver shows the scheduler up to n changes.
func (m *model) deliver(s *crashable, n int) {
	for uid, pod := range m.changes(s) {
		if n--; n < 0 {
			return
		}
		if pod == nil {
			delete(s.seen, uid)
			s.Forget(uid)
			continue
		}
		s.seen[uid] = digest(pod)
		s.Offer(pod)
	}
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
	for uid := range s.seen {
		s.seen[uid] = "?"
	}
	m.deliver(s, 1<<20)
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
	m.crashed.Go(func() { s.Shutdown(); <-s.done })
	synctest.Wait()
	m.schedulers[i] = m.start(i)
}
