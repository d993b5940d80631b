package activation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/routecache"
)

// Defaults of Options and Request.
const (
	DefaultMaxParked = 10_000
	DefaultPatience  = 30 * time.Second
)

// Request asks for a sandbox to be given a running pod. The caller has been
// authorised for what it says.
type Request struct {
	ID string
	// Namespace, Pool and Team are where a new sandbox comes from, or what is
	// known of an existing one.
	Namespace, Pool, Team string
	// Env is the env that a new sandbox is made from, or that an existing one has: then
	// Pool says nothing, and any of the env's members serves.
	Env string
	// New: the gateway knows no sandbox of this ID; make it.
	New bool
	// MayClaim: a pod may be claimed for the sandbox if it has no binding, or its
	// binding's pod is lost. Without it the sandbox's activation by another is
	// followed, and ErrExists says that there is none. New implies it.
	MayClaim bool
	// Resume, with MayClaim, resumes a sandbox that hibernates.
	Resume Resume
	// Make, with New, makes a sandbox that no first request asked for. Activate
	// then returns when its activation is over, also if ctx was done long before.
	Make *Make
	// Deadline is when the request is answered at the latest. Zero means the
	// context's, else DefaultPatience from now.
	Deadline time.Time
}

// Resume says which sandbox is to be resumed if it hibernates; the zero value none. It is
// resumed in the write that binds it to a pod, so that one that finds no pod hibernates
// on, and by no other request.
type Resume struct {
	UID types.UID
	// Lifetime is how long it is to run from then on; 0 is no end.
	Lifetime time.Duration
}

// resumes reports whether the sandbox is one that is to be resumed.
func (r Resume) resumes(s *v1alpha1.Sandbox) bool {
	return r.UID != "" && r.UID == s.UID && v1alpha1.Hibernated(s)
}

// endAt is when a sandbox that is resumed now is to end; nil is no end.
func (r Resume) endAt() *metav1.Time {
	if r.Lifetime == 0 {
		return nil
	}
	return v1alpha1.EndAfter(time.Now(), r.Lifetime)
}

// Options of an Activator. Client, Schedulers, Cache and Stamp are required.
type Options struct {
	// Client must answer reads live and not throttle by itself.
	Client client.Client
	// Schedulers finds the scheduler of a pool that exists (schedule.Set.Get).
	Schedulers func(namespace, pool string) (*schedule.PoolScheduler, bool)
	// Members returns the pools of an env that claims may go to, in any order; none for
	// an env that there is not. Nil: there are no envs.
	Members func(namespace, env string) []Member
	Cache   *routecache.Cache
	// Stamp gets or makes the stamp of a claim.
	Stamp func(id, claim string) *routecache.Stamp
	// Ready makes a sandbox's pod ready before a route to it is cached. Nil means
	// that a pod which runs is ready.
	Ready Ready
	// Fits returns nil if a sandbox that is to be restored may be, in this pod, which is
	// idle: else nothing is written, and its error is the activation's. Nil: it may, in any.
	Fits func(ctx context.Context, s *v1alpha1.Sandbox, pod types.NamespacedName) error
	// Known returns what this gateway knows of a sandbox whose pod runs, from memory;
	// nil if it knows none. Nil means that it never knows.
	Known func(id string) *Known
	// Asked is called for each request for a new sandbox, whatever becomes of it. It must
	// not block. Nil: not called.
	Asked func(namespace, pool string)
	// Timeouts are those of a sandbox that a first request makes from the pool. Nil: none
	// is set.
	Timeouts func(namespace, pool string) v1alpha1.SandboxTimeouts
	// MaxParked bounds the requests that wait, DefaultMaxParked if 0.
	MaxParked int
	// Metrics counts nowhere if nil.
	Metrics *Metrics
	// Log is slog.Default() if nil.
	Log *slog.Logger
}

// Activator activates sandboxes for one gateway. Make it with New. It is a
// manager.Runnable of every gateway; all methods are safe for concurrent use.
type Activator struct {
	o Options

	mu          sync.Mutex // guards what follows; never held over a wait or a call out
	closed      bool
	parked      int
	activations map[string][]*activation // by ID; rarely more than one each

	running sync.WaitGroup // activations; Go under mu while !closed
}

// New returns an Activator.
func New(o Options) *Activator {
	if o.MaxParked == 0 {
		o.MaxParked = DefaultMaxParked
	}
	if o.Members == nil {
		o.Members = func(string, string) []Member { return nil }
	}
	if o.Timeouts == nil {
		o.Timeouts = func(string, string) v1alpha1.SandboxTimeouts { return v1alpha1.SandboxTimeouts{} }
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Activator{o: o, activations: make(map[string][]*activation)}
}

// Activate returns when the sandbox may be resolved again: its route is in the
// cache, or resolving will find out what became of it. It fails with one of
// this package's errors at the deadline at the latest, or with ctx's. Leaving
// early undoes nothing.
func (a *Activator) Activate(ctx context.Context, r Request) error {
	start := time.Now()
	if r.Deadline.IsZero() {
		r.Deadline = start.Add(DefaultPatience)
		if d, ok := ctx.Deadline(); ok {
			r.Deadline = d
		}
	}
	r.MayClaim = r.MayClaim || r.New
	if r.New && a.o.Asked != nil && r.Env == "" { // of an env, claimFrom calls it for the member
		a.o.Asked(r.Namespace, r.Pool)
	}
	err := a.wait(ctx, r)
	a.o.Metrics.activated(err, time.Since(start))
	return err
}

func (a *Activator) wait(ctx context.Context, r Request) error {
	late := time.NewTimer(time.Until(r.Deadline))
	defer late.Stop()
	for {
		act, err := a.park(r)
		if err != nil {
			return err
		}
		select {
		case <-act.done:
			err = act.err
		case <-late.C:
			err = act.lateFor(r)
		case <-ctx.Done():
			err = ctx.Err()
		}
		if r.Make != nil {
			act.cancel()
			<-act.done // by the deadline at the latest: no sandbox is made after it
		}
		a.unpark()
		// An activation ends at the deadline of the request that began it. One that
		// joined it later has time left.
		outOfTime := errors.Is(err, ErrNoCapacity) || errors.Is(err, ErrNotReady)
		if outOfTime && act.deadline.Before(r.Deadline) && time.Now().Before(r.Deadline) {
			continue
		}
		if err != nil {
			return fmt.Errorf("activate sandbox %s: %w", r.ID, err)
		}
		return nil
	}
}

// park counts a request in and returns the activation to wait for.
func (a *Activator) park(r Request) (*activation, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, retry(ErrShutdown)
	}
	if a.parked >= a.o.MaxParked {
		return nil, retry(ErrParkingFull)
	}
	a.parked++
	a.o.Metrics.parked.Inc()
	for _, act := range a.activations[r.ID] {
		if act.serves(r) {
			a.o.Metrics.joined.Inc()
			return act, nil
		}
	}
	act := newActivation(a, r)
	a.activations[r.ID] = append(a.activations[r.ID], act)
	a.running.Go(act.run)
	return act, nil
}

func (a *Activator) unpark() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parked--
	a.o.Metrics.parked.Dec()
}

// remove takes an activation off the list, so that later requests begin a new one.
func (a *Activator) remove(act *activation) (stopping bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var rest []*activation
	for _, other := range a.activations[act.ID] {
		if other != act {
			rest = append(rest, other)
		}
	}
	if a.activations[act.ID] = rest; rest == nil {
		delete(a.activations, act.ID)
	}
	return a.closed
}

// Settled makes the sandbox's activations look again: the sandbox, or its pod, has
// changed. It does not block.
func (a *Activator) Settled(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, act := range a.activations[id] {
		select {
		case act.changed <- struct{}{}:
		default:
		}
	}
}

// Start waits for ctx, then shuts down.
func (a *Activator) Start(ctx context.Context) error {
	<-ctx.Done()
	a.Shutdown()
	return nil
}

// NeedLeaderElection says that every gateway activates.
func (a *Activator) NeedLeaderElection() bool { return false }

// Shutdown refuses further requests, ends those that wait with ErrShutdown, and
// returns when claims that had begun have settled; shut the schedulers down at
// the same time, so that none waits on.
func (a *Activator) Shutdown() {
	a.mu.Lock()
	a.closed = true
	for _, all := range a.activations {
		for _, act := range all {
			act.cancel()
		}
	}
	a.mu.Unlock()
	a.running.Wait()
}
