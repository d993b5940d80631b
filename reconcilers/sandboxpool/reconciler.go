package sandboxpool

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/address"
	"github.com/sandlane/sandlane/reconcilers/internal/pausecount"
	"github.com/sandlane/sandlane/reconcilers/internal/resync"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool/podtemplate"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool/poststarthooks"
)

// When a step fails:
//
// Each reconcile starts from what is there, so a step that failed is done again,
// by whatever process leads then. What the API server refuses, and pods that
// never become Ready, make creations wait (see creationBackoff); the condition
// Degraded shows the reason in the API server's or the kubelet's words. What is
// kept in memory (trust in a template, hooks that run, plugins' verdicts, Events
// sent) is begun anew by a new leader: hooks may run twice, nothing is lost.

const (
	// FinalizerName is on every pool pod from its creation on.
	FinalizerName = v1alpha1.FinalizerPod
	// RequeueAfter is the resync period of a pool; up to a fifth of it is added
	// at random, so that not all pools are reconciled at once.
	RequeueAfter = 10 * time.Second
)

// SandboxPoolReconciler reconciles SandboxPools. Set the fields, then call
// SetupWithManager once.
type SandboxPoolReconciler struct {
	// Client reads from the manager's cache and writes to the API server; nil is the
	// manager's, and a nil Scheme the manager's too.
	Client client.Client
	Scheme *runtime.Scheme
	// Recorder is nil for no Events.
	Recorder events.EventRecorder
	// Clientset reads the Events of pods that never got Ready; nil leaves them out
	// of messages.
	Clientset kubernetes.Interface
	// DigestResolver finds out whether two names are of one image; nil: only the pod's
	// status counts.
	DigestResolver DigestResolver
	// HookRunner runs post-start hooks; nil fails claims of pods that have any.
	HookRunner poststarthooks.Runner
	// PluginManager judges pools before they are worked on; nil lets all pass.
	PluginManager PluginManager
	// InitKey returns the key that new pods with sandboxd get; nil makes none of them.
	InitKey func(context.Context) (podtemplate.InitKey, error)
	// SandboxdImage is the image whose entry point is sandboxd, from which pods with that runtime
	// get it; empty: templates that ask for it are refused.
	SandboxdImage string
	// EgressAddress is the name server of pods with egress ByName. A pool of such pods gets
	// none without it.
	EgressAddress netip.Addr
	// SandboxReadyHook and IdleNotifier may be nil.
	SandboxReadyHook SandboxReadyHook
	IdleNotifier     IdleNotifier
	// Demand says what waits for pods; nil: pools have their replicas alone.
	Demand Demand
	// DemandChanged sends the pools to reconcile because what waits for them has changed; nil: such
	// a change waits for the pool's next reconcile.
	DemandChanged <-chan event.GenericEvent
	// RecycleAfter is how long ago a sandbox must have started for its pod to be used
	// again: see rested. 0 is at once.
	RecycleAfter time.Duration
	// Ledger is shared with reconcilers/sandbox, which loads it. Nil: this reconciler makes
	// and loads one of its own, and pods that were claimed are never used again.
	Ledger *address.Ledger
	// Clock is nil for the real one.
	Clock clock.PassiveClock
	// Metrics is nil for none.
	Metrics *Metrics

	expectations  *PoolExpectations
	backoff       *creationBackoff
	rule          *address.Rule
	pluginAnswers pluginAnswers
	events        eventLimit
	running       hookRuns
	readyHooks    background // calls of SandboxReadyHook
	firstSeen     firstSeen
	pods          podIndex
	claims        claims
	notes         notes
}

// Reconcile moves each pod of the pool one step, then creates or deletes
// unclaimed pods, then writes the status.
func (r *SandboxPoolReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pool := &v1alpha1.SandboxPool{}
	if err := r.Client.Get(ctx, req.NamespacedName, pool); apierrors.IsNotFound(err) {
		pool = nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the pool: %w", err)
	}
	if pool == nil {
		r.Metrics.gone(req.NamespacedName)
	}
	// Asked before the pods are read: an event between the two would meet the expectations,
	// and its pod would not be among those that were read.
	shown := r.expectations.Satisfied(req.NamespacedName)
	var owner types.UID
	if pool != nil && pool.DeletionTimestamp == nil {
		owner = pool.UID
	}
	pods, settled := r.pods.split(req.NamespacedName, owner)
	if pool == nil && len(pods) == 0 {
		r.expectations.DeleteExpectations(req.NamespacedName)
		r.backoff.forget(req.NamespacedName)
		r.pluginAnswers.forget(req.NamespacedName)
		r.firstSeen.update(req.NamespacedName, nil, r.now())
		r.claims.forget(req.NamespacedName)
		r.notes.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	refusal, err := r.askPlugins(ctx, pool)
	if err != nil {
		return ctrl.Result{}, err
	}
	tpl, err := r.template(ctx, pool)
	var templateErr *podtemplate.Error
	if refusal != nil {
		tpl, err = nil, refusal
	}
	if err != nil && !errors.As(err, &templateErr) {
		return ctrl.Result{}, err
	}
	// One pod that cannot be moved delays neither the others nor the stock.
	// The demand is read after the pods: a claim on one of them has its sandbox served.
	found := outcome{counts: countPods(pods, settled, tpl.HashOrEmpty(), pool, nil, r.now()), asked: r.demandOf(req.NamespacedName)}
	lacking := pool != nil && found.counts.coming() < limitsOf(pool, troubles{}, found.asked).wanted()
	waited := r.firstSeen.update(req.NamespacedName, pods, r.now())
	recheck, waiting, stepErr := r.step(ctx, pool, tpl, pods, waited, lacking)
	if pool == nil {
		return after(recheck, stepErr)
	}
	if len(waiting) > 0 {
		found.counts = countPods(pods, settled, tpl.HashOrEmpty(), pool, waiting, r.now())
	}
	resting, err := pausecount.Count(ctx, r.Client, pool.Namespace, pool.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.Metrics.seen(pool, found.counts, resting)
	if pool.DeletionTimestamp == nil {
		found = r.scale(ctx, pool, tpl, templateErr, found.counts, found.asked, shown)
	}
	r.Metrics.scaled(pool, found)
	found.paused = resting
	if found.reservation, err = r.reservation(ctx, pool); err != nil {
		return ctrl.Result{}, err
	}
	again, tidyErr := r.tidyNote(ctx, pool, found.asked)
	recheck = resync.Sooner(resync.Sooner(recheck, found.recheck), again)
	return after(recheck, errors.Join(stepErr, r.writeStatus(ctx, pool, found), tidyErr, r.syncMetadata(ctx, pool)))
}

func (r *SandboxPoolReconciler) now() time.Time {
	if r.Clock == nil {
		return time.Now()
	}
	return r.Clock.Now()
}

// event records what a person would want to know.
func (r *SandboxPoolReconciler) event(pool *v1alpha1.SandboxPool, kind, reason, action, note string, args ...any) {
	if r.Recorder != nil && pool != nil && r.events.allow(pool.UID, reason, r.now()) {
		r.Recorder.Eventf(pool, nil, kind, reason, action, note, args...)
	}
}

// after asks for the next look, at the latest after RequeueAfter with jitter; an
// error asks by itself.
func after(d time.Duration, err error) (ctrl.Result, error) {
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: resync.Sooner(d, resync.Between(RequeueAfter, RequeueAfter+RequeueAfter/5))}, nil
}
