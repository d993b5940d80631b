package sandboxenv

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/internal/resync"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool"
)

const (
	// RequeueAfter is the resync period of an env.
	RequeueAfter = 10 * time.Second
	// RequeueJitter is the share by which it varies at random to both sides, so that not
	// all envs are reconciled at once.
	RequeueJitter = 0.20

	// conflictPause is how long the cache is given to catch up after a conflict.
	conflictPause = 200 * time.Millisecond
)

// SandboxEnvReconciler reconciles SandboxEnvs. Set the fields, then call
// SetupWithManager once.
type SandboxEnvReconciler struct {
	// Client reads from the manager's cache and writes to the API server.
	Client client.Client
	Scheme *runtime.Scheme
	// LocalClusterID is the entry of spec.clusters that is this controller's. Needed.
	LocalClusterID string
	// Recorder takes Events; nil is made by SetupWithManager.
	Recorder events.EventRecorder
	// PluginManager judges each pool before it is written; nil lets all pass.
	PluginManager sandboxpool.PluginManager
	// EnvRouterSync may be nil.
	EnvRouterSync EnvRouterSync
	// Clock is nil for the real one.
	Clock clock.PassiveClock
	// Metrics is nil for none.
	Metrics *Metrics

	settled inLine
}

// Reconcile brings the local pools of an env in line with it, then writes its status.
// An env that is gone, or going, is no error; after a conflict it is reconciled soon again.
func (r *SandboxEnvReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	env := &v1alpha1.SandboxEnv{} // the cache's: it must not be changed
	if err := r.Client.Get(ctx, req.NamespacedName, env, client.UnsafeDisableDeepCopy); apierrors.IsNotFound(err) {
		r.settled.forget(req.NamespacedName, nil)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the env: %w", err)
	}
	if env.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	template, err := r.template(ctx, env)
	if err != nil {
		return ctrl.Result{}, err
	}
	seen, behind, err := r.members(ctx, env, template)
	if !behind {
		// A failure of one member delays neither the others nor the status.
		statusErr := r.writeStatus(ctx, env, template, seen)
		behind = conflict(statusErr)
		if !behind {
			err = errors.Join(err, statusErr)
		}
	}
	switch {
	case err != nil:
		return ctrl.Result{}, err
	case behind:
		return ctrl.Result{RequeueAfter: conflictPause}, nil
	}
	if r.EnvRouterSync != nil {
		r.EnvRouterSync.OnEnvUpsert(env)
	}
	return ctrl.Result{RequeueAfter: jittered()}, nil
}

// jittered is the time until the next reconcile.
func jittered() time.Duration {
	const most = time.Duration(RequeueJitter * float64(RequeueAfter))
	return resync.Between(RequeueAfter-most, RequeueAfter+most)
}

// conflict: the object is not as the cache has it.
func conflict(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// template returns the env's template; nil if there is none of that name.
func (r *SandboxEnvReconciler) template(ctx context.Context, env *v1alpha1.SandboxEnv) (*v1alpha1.SandboxTemplate, error) {
	t := &v1alpha1.SandboxTemplate{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: env.Spec.TemplateRef.Name}, t, client.UnsafeDisableDeepCopy) // it is only read
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading template %s: %w", env.Spec.TemplateRef.Name, err)
	}
	return t, nil
}

// MembersOf returns the members of an env in a cluster. They are the env's: do not
// change them.
func MembersOf(env *v1alpha1.SandboxEnv, clusterID string) []v1alpha1.EnvMember {
	for i := range env.Spec.Clusters {
		if c := &env.Spec.Clusters[i]; c.ClusterID == clusterID {
			return c.Members
		}
	}
	return nil
}

// members works on each member, and on each pool of the env that is no member any
// more. It returns what it saw of all of them, whatever failed; behind: some write met
// a conflict.
func (r *SandboxEnvReconciler) members(ctx context.Context, env *v1alpha1.SandboxEnv, template *v1alpha1.SandboxTemplate) (seen []memberView, behind bool, err error) {
	var errs []error
	add := func(s memberView, err error) {
		if seen = append(seen, s); conflict(err) {
			behind = true
		} else {
			errs = append(errs, err)
		}
	}
	known := map[string]bool{}
	listed := env.Spec.HasCluster(r.LocalClusterID)
	for _, m := range MembersOf(env, r.LocalClusterID) {
		known[m.Name] = true
		add(r.materialise(ctx, env, m, template))
	}
	r.settled.forget(client.ObjectKeyFromObject(env), known)
	var pools v1alpha1.SandboxPoolList
	if err := r.Client.List(ctx, &pools, client.InNamespace(env.Namespace), client.MatchingFields{indexOwner: env.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return seen, behind, errors.Join(append(errs, fmt.Errorf("listing the env's pools: %w", err))...)
	}
	for i := range pools.Items {
		switch p := &pools.Items[i]; {
		case known[p.Name] || !metav1.IsControlledBy(p, env) || !r.isOurs(p, env):
		case listed:
			add(r.drain(ctx, env, p))
		case clusterOf(p) == r.LocalClusterID: // its entry may have been renamed
			add(memberView{name: p.Name, state: v1alpha1.MemberInconsistent, pool: p, message: noEntry(r.LocalClusterID)}, nil)
		}
	}
	return seen, behind, errors.Join(errs...)
}

func (r *SandboxEnvReconciler) now() time.Time {
	if r.Clock == nil {
		return time.Now()
	}
	return r.Clock.Now()
}
