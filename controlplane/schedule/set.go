package schedule

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Set keeps one running PoolScheduler for each pool. The index feeds it:
// PoolChanged, Offer and Forget fit its hooks and do not block. It is a
// manager.Runnable of every gateway. All methods are safe for concurrent use.
//
// Pods may be seen before their pool, or outlive it. Their scheduler is made then,
// is found by Get once the pool itself was seen, and goes with the last pod if it
// never is.
type Set struct {
	client client.Client
	opts   []Option
	ctx    context.Context // of every Run; done when the set is shut down
	cancel context.CancelFunc
	runs   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	index  int // this gateway is number index, from 0,
	of     int // of that many; 0 until the controller has told it
	pools  map[types.NamespacedName]*member
	// cordoned are the nodes that are, by name; it is not changed, but replaced.
	cordoned map[string]bool
}

type member struct {
	*PoolScheduler
	known  bool // the pool itself was seen
	cancel context.CancelFunc
}

// NewSet returns an empty set whose schedulers get the client and options.
func NewSet(c client.Client, opts ...Option) *Set {
	ctx, cancel := context.WithCancel(context.Background())
	shared := newRoom()
	opts = append(slices.Clone(opts), func(s *settings) { s.room = shared })
	return &Set{client: c, opts: opts, ctx: ctx, cancel: cancel, pools: make(map[types.NamespacedName]*member)}
}

// SetPickOffset tells the set that this gateway is number index, from 0, of `of` gateways that
// share the pools. It only decides which pods are tried first: gateways that start at random
// points of a queue of pods meet (in one of 300 claims; with 32 claims under way in 9 to 14),
// those that know their pick offsets start at equal distances.
//
// Each has its own scheduler of a pool, and they know of each other only what
// the watch shows: that pods leave idle. So that they seldom try the same pod at
// the same time, each begins elsewhere in the queue: the controller tells it index and of
// with its polls, and before the first poll a hash of the gateway's name says where.
// The pick offset decides nothing else: every gateway reaches all stock that it sees. When
// stock comes one by one to several gateways that wait for it, they do meet; the
// gateway that loses tries the next pod, once the watch has shown it that the first is lost
// (or viewLag is over): what others claimed before that is out of its view then.
func (s *Set) SetPickOffset(index, of int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.index == index && s.of == of {
		return
	}
	s.index, s.of = index, of
	for _, m := range s.pools {
		m.setPickOffset(index, of)
	}
}

// SetCordoned tells the set which nodes are cordoned, by name: claims take their pods last. The
// caller does not change the map any more.
func (s *Set) SetCordoned(nodes map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if maps.Equal(s.cordoned, nodes) {
		return
	}
	s.cordoned = nodes
	for _, m := range s.pools {
		m.setCordoned(nodes)
	}
}

// PoolChanged tells that a pool exists, or no longer does: then its waiting
// requests are answered with ErrPoolGone.
func (s *Set) PoolChanged(namespace, name string, exists bool) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	s.mu.Lock()
	defer s.mu.Unlock()
	if exists {
		if m := s.member(key); m != nil {
			m.known = true
		}
		return
	}
	if m := s.pools[key]; m != nil {
		s.drop(key, m)
	}
}

// drop ends a pool's scheduler. The mutex is held.
func (s *Set) drop(key types.NamespacedName, m *member) {
	delete(s.pools, key)
	m.poolGone()
	m.cancel()
}

// member returns the pool's scheduler, made and started if need be; nil if the
// set is shut down. The mutex is held.
func (s *Set) member(key types.NamespacedName) *member {
	m := s.pools[key]
	if m == nil && !s.closed {
		m = &member{PoolScheduler: NewPoolScheduler(key.Namespace, key.Name, "", "", s.client, s.opts...)}
		if s.of > 0 {
			m.setPickOffset(s.index, s.of)
		}
		m.setCordoned(s.cordoned)
		ctx, cancel := context.WithCancel(s.ctx)
		m.cancel = cancel
		s.pools[key] = m
		s.runs.Go(func() { m.Run(ctx) })
	}
	return m
}

// Get returns the scheduler of a pool that exists.
func (s *Set) Get(namespace, name string) (*PoolScheduler, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.pools[types.NamespacedName{Namespace: namespace, Name: name}]
	if m == nil || !m.known {
		return nil, false
	}
	return m.PoolScheduler, true
}

// Offer passes an idle pod to its pool's scheduler.
func (s *Set) Offer(pod *corev1.Pod) {
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[v1alpha1.LabelPool]}
	s.feed(key, true, func(m *member) { m.Offer(pod) })
}

// Forget tells a pool's scheduler that a pod is no longer to be had.
func (s *Set) Forget(namespace, pool string, uid types.UID) {
	key := types.NamespacedName{Namespace: namespace, Name: pool}
	s.feed(key, false, func(m *member) { m.Forget(uid) })
}

// feed tells a pool's scheduler of a pod; create: it is made if there is none. One
// that cannot be found is told under the mutex, so that it has no pods when it is
// dropped for having none. The others' own locks are enough.
func (s *Set) feed(key types.NamespacedName, create bool, tell func(*member)) {
	s.mu.Lock()
	m := s.pools[key]
	if m == nil && create {
		m = s.member(key)
	}
	if m == nil || m.known {
		s.mu.Unlock()
		if m != nil {
			tell(m)
		}
		return
	}
	defer s.mu.Unlock()
	if tell(m); m.unstocked() {
		s.drop(key, m)
	}
}

// Start waits for ctx, then shuts down.
func (s *Set) Start(ctx context.Context) error {
	<-ctx.Done()
	s.Shutdown()
	return nil
}

// NeedLeaderElection says that every gateway schedules.
func (s *Set) NeedLeaderElection() bool { return false }

// Shutdown shuts every scheduler down and returns when all have answered their
// requests and settled their claims.
func (s *Set) Shutdown() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.runs.Wait()
}
