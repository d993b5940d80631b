package pause

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/failpoint"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
)

// The errors of a pause or resume that was refused; writes.ErrStale is one too. The sandbox is
// then as it was before.
var (
	// ErrNotRunning: the sandbox cannot be paused because it does not run: it is starting,
	// paused already, or about to end.
	ErrNotRunning = errors.New("the sandbox is not running")
	// ErrNoStore: there is nowhere to keep the files of a sandbox that is to hibernate.
	ErrNoStore = errors.New("there is no store for the files of sandboxes")
	// ErrUnsupported: the sandbox's pod cannot be frozen.
	ErrUnsupported = errors.New("the sandbox's pod cannot be frozen")
	// ErrUnanswered: sandboxd in the sandbox's pod does not answer, or answers with an
	// unexpected status.
	ErrUnanswered = errors.New("the sandbox does not answer")
)

const (
	// orderTimeout bounds one order, so that it never reaches the address's next pod: after
	// a fence an address serves no sandbox for at least 8 s (docs/design/design.md 4.2).
	orderTimeout = 2 * time.Second
	// orderTries is how many times an order is sent before order returns the error.
	orderTries = 3
	// movesAtOnce is how many times an order that could not be sent, because the route had
	// changed, is repeated without a delay. It is 2 because the watch shows two changes of the sandbox: this
	// gateway's own write, and the status that the controller writes in answer to it.
	movesAtOnce = 2
	// busyTries is how often a freeze or a resume is tried again while the sandbox's files
	// are read.
	busyTries = 20
	busyWait  = 100 * time.Millisecond
	// undoTimeout bounds the resume that undoes a failed pause.
	undoTimeout = 5 * time.Second
	// maxOwnWrites bounds the claims whose last write by this gateway is remembered.
	maxOwnWrites = 4096
)

// Orders sends orders to the freezer of a pod. *sandboxdclient.Agent implements it.
type Orders interface {
	Freeze(ctx context.Context, id string, pod *corev1.Pod, number int64) error
	Unfreeze(ctx context.Context, id string, pod *corev1.Pod, number int64) error
	// Probe is an Unfreeze that fails where a Freeze would.
	Probe(ctx context.Context, id string, pod *corev1.Pod, number int64) error
}

// Pauser pauses and resumes. Make it with New; it is safe for concurrent use.
type Pauser struct {
	api     client.Client // must not read from a cache
	cache   *routecache.Cache
	pods    sandboxdclient.Pods
	orders  Orders
	metrics *Metrics
	saver   Saver              // nil: no sandbox can hibernate
	wakes   singleflight.Group // by sandbox UID
	saves   singleflight.Group // by claim ID and pauseOrder

	remembering sync.Mutex                   // held from reading own until it is written
	own         *lru.Cache[string, ownWrite] // by claim ID
}

// ownWrite is the last pause or resume that this gateway has written for a claim's
// sandbox.
type ownWrite struct {
	order  int64 // spec.pauseOrder as written
	paused bool
	awake  bool // since the write the freezer has continued the sandbox's processes
}

// New makes a Pauser. With nil metrics nothing is counted.
func New(api client.Client, cache *routecache.Cache, orders Orders, metrics *Metrics) (*Pauser, error) {
	if metrics == nil {
		metrics = NewMetrics(nil)
	}
	own, err := lru.New[string, ownWrite](maxOwnWrites)
	if err != nil {
		return nil, fmt.Errorf("remember pauses: %w", err)
	}
	return &Pauser{api: api, cache: cache, pods: sandboxdclient.NewPods(api, cache), orders: orders, metrics: metrics, own: own}, nil
}

// Rewind forgets the writes: the API server has gone back to an older state, in which sandboxes
// have the orders of then.
func (p *Pauser) Rewind() {
	p.remembering.Lock()
	defer p.remembering.Unlock()
	p.own.Purge()
}

// Correct returns the index's answer with the state that this gateway has written last, if
// the index has not seen that write yet.
func (p *Pauser) Correct(a routing.Answer) routing.Answer {
	if a.ClaimID == "" || a.State == routing.Ended {
		return a
	}
	if w, ok := p.own.Get(a.ClaimID); ok && a.PauseOrder < w.order {
		a.State, a.Route = routing.MaybeFrozen, nil
		if w.paused {
			a.State = routing.Paused
		}
	}
	return a
}

// Pause pauses a sandbox that was read just now. It returns when all its processes are
// stopped and, if it hibernates, its files are kept and its pod is given up. Pause first
// asks the freezer whether it can freeze; if not, Pause writes nothing. An error that is
// none of this package's errors means that the pause had begun: this gateway has resumed
// the sandbox since, or the controller completes what the sandbox's spec says.
func (p *Pauser) Pause(ctx context.Context, s *v1alpha1.Sandbox, mode v1alpha1.PauseMode) (err error) {
	defer func(begun time.Time) { p.metrics.observe(opPause, mode, begun, err) }(time.Now())
	switch {
	case s.Spec.Paused || s.Spec.Restore != nil || s.Spec.Binding == nil:
		return ErrNotRunning
	case mode == v1alpha1.PauseHibernate && p.saver == nil:
		return ErrNoStore
	}
	if err := p.probe(ctx, s, mode); err != nil {
		return err
	}
	failpoint.Hit("pause/probed") // the freezer answers, nothing is written
	was := s.Spec.Timeouts.EndAt
	if err := p.write(ctx, s, true, writes.PauseAs(s, mode)); err != nil {
		return err
	}
	written := time.Now()
	failpoint.Hit("pause/written") // the pause is written, nothing of it is carried out
	err = p.takeStep(ctx, s)
	busy := errors.Is(err, sandboxdclient.ErrBusy) // a snapshot has begun since the probe
	switch {
	case errors.Is(err, errEnded):
		return err
	case err == nil, errors.Is(err, writes.ErrStale): // ErrStale: the sandbox was paused, and another call has resumed it already
		return nil
	}
	// Undo the pause, also if the client has left.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	err = fmt.Errorf("freeze sandbox %s: %w", s.Name, err)
	undo := p.resume(ctx, s, endAfterUndo(was, time.Since(written)))
	switch {
	case undo == nil && busy:
		return fmt.Errorf("%w: %w", ErrNotRunning, err)
	case undo == nil:
		return err
	}
	switch live, readErr := p.live(ctx, s); {
	case errors.Is(readErr, errEnded):
		return readErr
	case !errors.Is(undo, writes.ErrStale):
		return errors.Join(err, undo)
	case readErr == nil && v1alpha1.Hibernated(live): // another gateway has finished the pause
		return nil
	}
	return err
}

// endAfterUndo is the end time after a pause that took so long and is undone: the time that
// was left when it began is left again.
func endAfterUndo(was *metav1.Time, took time.Duration) *metav1.Time {
	if was == nil {
		return nil
	}
	return v1alpha1.EndAfter(was.Time, took)
}

// probe returns nil if the sandbox's pod runs and a pause in this mode can be expected to
// succeed.
func (p *Pauser) probe(ctx context.Context, s *v1alpha1.Sandbox, mode v1alpha1.PauseMode) error {
	err := p.order(ctx, s, func(ctx context.Context, id string, pod *corev1.Pod, number int64) error {
		if v1alpha1.PhaseOf(pod) != v1alpha1.PodRunning {
			return ErrNotRunning
		}
		if mode == v1alpha1.PauseHibernate {
			if err := p.saver.Keepable(pod); err != nil {
				return fmt.Errorf("%w: %w", ErrUnsupported, err)
			}
		}
		return p.orders.Probe(ctx, id, pod, number)
	})
	switch {
	case err == nil, errors.Is(err, ErrNotRunning), errors.Is(err, ErrUnsupported), errors.Is(err, writes.ErrStale):
		return err
	case errors.Is(err, sandboxdclient.ErrNoFreezer):
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	case errors.Is(err, sandboxdclient.ErrNotInitialised), errors.Is(err, sandboxdclient.ErrBusy), errors.Is(err, sandboxdclient.ErrPodGone):
		return fmt.Errorf("%w: %w", ErrNotRunning, err)
	}
	return fmt.Errorf("%w: %w", ErrUnanswered, err)
}

// Resume continues a paused sandbox that was read just now and sets its end time; with a
// nil endAt the sandbox gets no end time. Resume returns when the sandbox runs. ErrStale
// means that nothing was written. Resume waits for a sandbox whose files are being kept; once
// they are, it returns ErrStale.
func (p *Pauser) Resume(ctx context.Context, s *v1alpha1.Sandbox, endAt *metav1.Time) error {
	if err := p.awaitSaved(ctx, s); err != nil {
		return err
	}
	begun := time.Now()
	err := p.resume(ctx, s, endAt)
	p.metrics.observe(opResume, v1alpha1.PauseFreeze, begun, err)
	return err
}

func (p *Pauser) resume(ctx context.Context, s *v1alpha1.Sandbox, endAt *metav1.Time) error {
	if err := p.write(ctx, s, false, writes.Resume(s, endAt)); err != nil {
		return err
	}
	failpoint.Hit("pause/resumed") // the resume is written, all is still stopped
	err := p.takeStep(ctx, s)
	if err == nil {
		p.remember(s.Spec.Binding.ClaimID, ownWrite{order: s.Spec.PauseOrder, awake: true})
		return nil
	}
	if errors.Is(err, writes.ErrStale) || neverFrozen(s, err) {
		return nil
	}
	return fmt.Errorf("unfreeze sandbox %s: %w", s.Name, err)
}

// EnsureAwake returns nil once the processes in a sandbox's pod are known not to be frozen.
// Unless the sandbox's status or an earlier order of this gateway shows that, EnsureAwake
// orders the freezer to continue them. The gateway's activation.Ready calls it.
func (p *Pauser) EnsureAwake(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) error {
	switch {
	case s.Spec.Paused:
		return fmt.Errorf("sandbox %s: %w", s.Name, ErrNotRunning)
	case v1alpha1.Awake(s), p.knowsAwake(s):
		return nil
	}
	err := p.orders.Unfreeze(ctx, s.Name, pod, s.Spec.PauseOrder)
	if neverFrozen(s, err) {
		return nil
	}
	return err
}

// neverFrozen reports whether an unfreeze failed because the sandbox has no freezer, and so
// was never frozen. If its status says that it was, its freezer takes no order of ours any
// more. A missing init key says nothing of the kind: that order was never sent.
func neverFrozen(s *v1alpha1.Sandbox, err error) bool {
	return errors.Is(err, sandboxdclient.ErrNoFreezer) && !v1alpha1.Stopped(s)
}

// EnforcePause takes the next step of a sandbox for the controller. It returns the errors that
// controlplane.PauseEnforcer asks for.
func (p *Pauser) EnforcePause(ctx context.Context, o controlplane.EnforcePause) error {
	begun, s := time.Now(), &v1alpha1.Sandbox{}
	err := p.enforcePause(ctx, s, o)
	p.metrics.observe(opRepeat, s.Spec.PauseMode, begun, err)
	switch {
	case errors.Is(err, writes.ErrStale), errors.Is(err, controlplane.ErrNotSaved): // whatever else it is
	case errors.Is(err, sandboxdclient.ErrNoFreezer):
		return fmt.Errorf("%w: %w", controlplane.ErrNoFreezer, err)
	case errors.Is(err, sandboxdclient.ErrRefused), errors.Is(err, sandboxdclient.ErrNotInitialised), errors.Is(err, sandboxdclient.ErrBusy):
		return fmt.Errorf("%w: %w", controlplane.ErrNotDone, err)
	case errors.Is(err, sandboxdclient.ErrNoAnswer):
		return fmt.Errorf("%w: %w", controlplane.ErrUnanswered, err)
	}
	return err // this gateway could not ask: the controller must not take it for the freezer's failure
}

func (p *Pauser) enforcePause(ctx context.Context, s *v1alpha1.Sandbox, o controlplane.EnforcePause) error {
	err := p.api.Get(ctx, types.NamespacedName{Name: o.SandboxID}, s)
	switch {
	case apierrors.IsNotFound(err):
		return writes.ErrStale
	case err != nil:
		return fmt.Errorf("reading sandbox %s: %w", o.SandboxID, err)
	case s.Spec.End != nil || s.Spec.Binding == nil || s.Spec.Binding.ClaimID != o.ClaimID,
		s.Spec.PauseOrder != o.Order || s.Spec.Paused != o.Freeze:
		return writes.ErrStale
	}
	return p.takeStep(ctx, s)
}
