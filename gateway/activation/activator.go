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
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
)

// DefaultPatience is the time of a request that has no deadline.
const DefaultPatience = 30 * time.Second

// request is a routing.Request, with what a create of the REST API makes; nil for a first
// request.
type request struct {
	routing.Request
	Make *Make
}

// resumes reports whether the sandbox is the one to be resumed, and hibernates.
func (r request) resumes(s *v1alpha1.Sandbox) bool {
	return r.Resume.UID != "" && r.Resume.UID == s.UID && v1alpha1.Hibernated(s)
}

// endAt returns the end time of a sandbox that is resumed now; nil if it gets none.
func (r request) endAt() *metav1.Time {
	if r.Resume.Lifetime == 0 {
		return nil
	}
	return v1alpha1.EndAfter(time.Now(), r.Resume.Lifetime)
}

// Options of an Activator. Client, Schedulers, Cache and ClaimUse are required.
type Options struct {
	// Client must read from the API server and not from a cache, and not throttle by itself.
	Client client.Client
	// Schedulers finds the scheduler of a pool that exists (schedule.Set.Get).
	Schedulers func(namespace, pool string) (*schedule.PoolScheduler, bool)
	// Members returns the pools of an env that claims may use, in any order; none if the env
	// does not exist. If it is nil, there are no envs.
	Members func(namespace, env string) []routing.Member
	Cache   *routecache.Cache
	// ClaimUse gets or makes the use of a claim.
	ClaimUse func(id, claim string) *routecache.ClaimUse
	// Ready makes a sandbox's pod ready before a route to it is cached. If it is nil, a pod
	// that runs is ready.
	Ready Ready
	// Restorable is called before a sandbox whose files are to be restored waits for a pod. It
	// returns nil if the files are there, as far as that is known; otherwise no pod is taken, and
	// the activation fails with its error. It may take long, since
	// no pod and no claim is kept for it. If it is nil, all are there.
	Restorable func(ctx context.Context, s *v1alpha1.Sandbox) error
	// Fits is called before such a sandbox is bound to an idle pod, and holds up claims of the
	// pool. It returns nil if the files can be restored in that pod; otherwise nothing is
	// written, and the activation fails with its error. If it is nil, every pod fits.
	Fits func(ctx context.Context, s *v1alpha1.Sandbox, pod types.NamespacedName) error
	// Known returns what this gateway knows from memory of a sandbox. If it is nil, the gateway
	// never knows one.
	Known func(id string) routing.Answer
	// ReadyKnown is Ready by what Known has answered of a sandbox that runs. If it says
	// EndSandbox or FailRequest, the activation reads the sandbox and calls Ready. Required with
	// Known.
	ReadyKnown func(ctx context.Context, id string, known routing.Answer) error
	// Wake resumes the paused sandbox of that UID, and returns what is left to do: nothing, or,
	// for a sandbox that hibernates, the resume with a pod. writes.ErrStale says that the sandbox
	// is to be resolved again. If Wake is nil, nothing is done before the activation.
	Wake func(ctx context.Context, id string, uid types.UID) (left routing.Resume, err error)
	// OnNewRequest is called for each request for a new sandbox of a pool, also if it fails;
	// for a new sandbox of an env, for each member that the activation tries. It must not
	// block. If it is nil, it is not called.
	OnNewRequest func(namespace, pool string)
	// Timeouts returns the timeouts of a sandbox that a first request makes from the pool. If
	// it is nil, such a sandbox gets none.
	Timeouts func(namespace, pool string) v1alpha1.SandboxTimeouts
	// Egress returns which hosts such a sandbox may connect to; nil leaves that to the cluster.
	// If it is nil, so is what it returns.
	Egress func(namespace, pool string) *v1alpha1.SandboxEgress
	// NoStart returns the reason for which none of a pool's pods can start, such as that their
	// image does not exist; empty if one may. If it is nil, one always may.
	NoStart func(namespace, pool string) string
	// Metrics may be nil, and then nothing is counted.
	Metrics *Metrics
	// Log is slog.Default() if nil.
	Log *slog.Logger
}

// Activator activates sandboxes for one gateway. It does not bound how many requests wait:
// its callers do. Make it with New. It is a
// manager.Runnable of every gateway; all methods are safe for concurrent use.
type Activator struct {
	o Options

	mu          sync.Mutex // guards the fields below; never held while waiting or calling another package
	closed      bool
	activations map[string][]*activation // by sandbox ID; rarely more than one each

	running sync.WaitGroup // of activations; running.Go is called under mu while !closed
}

// New returns an Activator.
func New(o Options) *Activator {
	if o.Members == nil {
		o.Members = func(string, string) []routing.Member { return nil }
	}
	if o.Timeouts == nil {
		o.Timeouts = func(string, string) v1alpha1.SandboxTimeouts { return v1alpha1.SandboxTimeouts{} }
	}
	if o.Egress == nil {
		o.Egress = func(string, string) *v1alpha1.SandboxEgress { return nil }
	}
	if o.NoStart == nil {
		o.NoStart = func(string, string) string { return "" }
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Activator{o: o, activations: make(map[string][]*activation)}
}

// Activate gives a sandbox a running pod. It returns nil when the caller is to resolve the
// request again: the route is in the cache then, or resolving shows how the sandbox has
// changed. It fails with one of this package's errors or package routing's, at the deadline at
// the latest, or with ctx's error. If ctx ends early, the activation goes on.
//
// A Resume resumes the sandbox first, if it is paused. Requests share a resume and an activation,
// so that a burst of them costs no read each.
func (a *Activator) Activate(ctx context.Context, r routing.Request) error {
	if r.Resume.UID != "" && a.o.Wake != nil {
		left, err := a.o.Wake(ctx, r.ID, r.Resume.UID)
		switch {
		case errors.Is(err, writes.ErrStale):
			return nil
		case err != nil:
			return err
		}
		r.Resume, r.MayClaim = left, r.MayClaim || left.UID != ""
	}
	return a.ActivateHibernated(ctx, r)
}

// ActivateHibernated is Activate for a request whose Resume, if it has one, is of a sandbox that
// hibernates: the write that binds the sandbox to a pod also resumes it, so that a sandbox for
// which there is no pod goes on hibernating.
func (a *Activator) ActivateHibernated(ctx context.Context, r routing.Request) error {
	return a.activate(ctx, request{Request: r})
}

// Create is Activate for a create of the REST API, which makes the sandbox as m says. It
// returns when its activation is over, also if ctx was done long before.
func (a *Activator) Create(ctx context.Context, r routing.Request, m *Make) error {
	r.New = true
	return a.activate(ctx, request{r, m})
}

func (a *Activator) activate(ctx context.Context, r request) error {
	start := time.Now()
	if r.Deadline.IsZero() {
		r.Deadline = start.Add(DefaultPatience)
		if d, ok := ctx.Deadline(); ok {
			r.Deadline = d
		}
	}
	r.MayClaim = r.MayClaim || r.New
	if r.New && a.o.OnNewRequest != nil && r.Env == "" { // for an env, claimFrom calls OnNewRequest for each member that it tries
		a.o.OnNewRequest(r.Namespace, r.Pool)
	}
	err := a.wait(ctx, r)
	a.o.Metrics.observe(err, time.Since(start))
	return err
}

func (a *Activator) wait(ctx context.Context, r request) error {
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
			err = act.errorAtDeadline(r)
		case <-ctx.Done():
			err = ctx.Err()
		}
		if r.Make != nil {
			act.cancel()
			<-act.done // closed by the deadline at the latest: no sandbox is made after it
		}
		a.unpark()
		// An activation ends at the deadline of the request that began it. A request that
		// joined it later may have time left.
		var noStart *routing.NoStartError
		outOfTime := errors.Is(err, routing.ErrNoCapacity) && !errors.As(err, &noStart) || errors.Is(err, ErrNotReady)
		if outOfTime && act.deadline.Before(r.Deadline) && time.Now().Before(r.Deadline) {
			continue
		}
		if err != nil {
			return fmt.Errorf("activate sandbox %s: %w", r.ID, err)
		}
		return nil
	}
}

// park counts a request as waiting and returns the activation that it is to wait for.
func (a *Activator) park(r request) (*activation, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, retry(routing.ErrDraining)
	}
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
	a.o.Metrics.parked.Dec()
}

// remove takes an activation off the list, so that later requests begin a new one. It
// reports whether the Activator is shutting down.
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

// NoteChange makes the sandbox's activations read again, because the sandbox or its pod has
// changed. It does not block.
func (a *Activator) NoteChange(id string) {
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

// Shutdown refuses further requests, ends the waiting ones with routing.ErrDraining, and returns
// when all claims that had begun are over. Shut the schedulers down at the same time, or
// their claims go on waiting.
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
