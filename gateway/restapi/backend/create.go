package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/gateway/index"
	"github.com/sandlane/sandlane/gateway/pause/files"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/routing"
)

// errEndedMeanwhile: the sandbox was gone before its create was done.
var errEndedMeanwhile = errors.New("the sandbox ended while it was made")

// Create implements restapi.Sandboxes. The sandbox is made bound, in one write, and
// its pod claimed and initialised, all by one activation that is its own. If that fails,
// a sandbox that may have been made is ended before the error is returned; if it cannot
// be ended in time the error is ErrOutcomeUnknown, and ending it goes on.
func (x *Backend) Create(ctx context.Context, n restapi.NewSandbox) (restapi.Sandbox, error) {
	m, err := x.makeOf(n)
	if err != nil {
		return restapi.Sandbox{}, err
	}
	named := false // a pod of the sandbox may be one with egress ByName
	for _, pool := range x.poolsOf(n) {
		named = named || byName(pool)
		if n.Egress.ByName() && !byName(pool) {
			return restapi.Sandbox{}, fmt.Errorf("create sandbox %s: %w", n.ID, restapi.Invalidf("pool %s has no egress by name", pool.Name))
		}
		if err := x.canRestrict(ctx, n.Namespace, pool.Name, n.Egress); err != nil {
			return restapi.Sandbox{}, fmt.Errorf("create sandbox %s: %w", n.ID, err)
		}
	}
	if named && (n.Egress.Restricted() || n.Egress.ByName()) {
		if m.Egress, err = x.spec(ctx, n.Namespace, n.ID, n.Egress); err != nil {
			return restapi.Sandbox{}, fmt.Errorf("create sandbox %s: %w", n.ID, err)
		}
	}
	restore, err := x.restoreOf(ctx, n)
	if err != nil {
		return restapi.Sandbox{}, fmt.Errorf("create sandbox %s: %w", n.ID, err)
	}
	defer restore.Close()
	var made *v1alpha1.Sandbox // written by the activation, which has ended when Activate returns
	m.Ready = func(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) error {
		// In this order: nothing runs in a sandbox whose sandboxd was not initialised.
		if err := x.restrict(ctx, s, n.Egress); err != nil {
			if errors.Is(err, ErrNotOurs) || refusedForGood(err) {
				return activation.EndSandbox.With(err) // nor will it be written later
			}
			return err
		}
		if err := restore.Ready(ctx, s, pod); err != nil {
			return err
		}
		err := x.agent.InitRestored(ctx, s, pod, n.Env, restore.Restored())
		if err == nil {
			made = s
		}
		return err
	}
	err = x.activate(ctx, routing.Request{ID: n.ID, Namespace: n.Namespace, Env: n.SandboxEnv, Pool: n.Pool, Team: n.Team}, m)
	switch {
	case err != nil:
	case ctx.Err() != nil:
		err = ctx.Err() // the client has left, and does not learn the ID
	case made == nil:
		err = errEndedMeanwhile
	default:
		return x.describe(made), nil
	}
	if m.Tried() && !x.undo(n) {
		return restapi.Sandbox{}, fmt.Errorf("create sandbox %s: %w: %w", n.ID, restapi.ErrOutcomeUnknown, err)
	}
	return restapi.Sandbox{}, fmt.Errorf("create sandbox %s: %w", n.ID, createError(err))
}

// activate waits for a pod, in one of the places that the namespace has for that. A nil make
// is that of a sandbox which exists.
func (x *Backend) activate(ctx context.Context, r routing.Request, m *activation.Make) error {
	leave, err := x.wait(r.Namespace, r.ID)
	if err != nil {
		return fmt.Errorf("%w: %w", restapi.ErrManyWait, err)
	}
	defer leave()
	if m == nil {
		return x.activator.ActivateHibernated(ctx, r)
	}
	return x.activator.Create(ctx, r, m)
}

// restoreOf returns what restores the files that the sandbox begins with.
func (x *Backend) restoreOf(ctx context.Context, n restapi.NewSandbox) (Restorer, error) {
	switch {
	case n.Snapshot == "":
		return noFiles{}, nil
	case x.snapshots == nil:
		return nil, restapi.ErrNoSnapshot
	}
	r, err := x.snapshots.Restorer(ctx, n.Namespace, n.Snapshot)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// noFiles restores nothing.
type noFiles struct{}

func (noFiles) Ready(context.Context, *v1alpha1.Sandbox, *corev1.Pod) error { return nil }
func (noFiles) Restored() *sandboxdclient.Restoring                         { return nil }
func (noFiles) Close()                                                      {}

// poolsOf are the pools that may give the sandbox its pod: that which is named, or the
// members of the env.
func (x *Backend) poolsOf(n restapi.NewSandbox) []index.PoolInfo {
	if n.SandboxEnv == "" {
		pool, ok := x.index.Pool(n.Namespace, n.Pool)
		if !ok || pool.Deleting {
			return nil
		}
		return []index.PoolInfo{pool}
	}
	var all []index.PoolInfo
	for _, m := range x.index.Members(n.Namespace, n.SandboxEnv) {
		all = append(all, m.PoolInfo)
	}
	return all
}

// makeOf checks that the pool, or an env's members, which are all of one template, can
// back such a sandbox, and returns its activation.Make.
func (x *Backend) makeOf(n restapi.NewSandbox) (*activation.Make, error) {
	pools := x.poolsOf(n)
	if len(pools) == 0 {
		return nil, restapi.Invalidf("there is no pool for template %s", cmp.Or(n.SandboxEnv, n.Pool))
	}
	pool := pools[0]
	if t := x.index.Template(pool); t == nil || !t.RunsSandboxd() {
		return nil, restapi.Invalidf("pool %s does not run sandboxd: no container of its template has the port %d",
			pool.Name, v1alpha1.SandboxdPort)
	}
	if now := time.Now(); !possibleEnd(now, n.EndAt) {
		return nil, restapi.Invalidf("it cannot end at %s", n.EndAt.UTC().Format(time.RFC3339))
	}
	end := metav1.NewTime(n.EndAt.UTC().Truncate(time.Second))
	m := &activation.Make{
		Timeouts: v1alpha1.SandboxTimeouts{EndAt: &end}, Metadata: n.Metadata,
		Network: v1alpha1.SandboxNetwork{Private: n.Private, Unsecured: !n.Secure}, Owner: n.KeyID, Snapshot: n.Snapshot,
		Internet: n.Egress.Asked.Internet != nil && *n.Egress.Asked.Internet,
	}
	if n.AutoPause {
		m.Timeouts.OnTimeout, m.Timeouts.Lifetime = v1alpha1.TimeoutPause, &metav1.Duration{Duration: n.Lifetime}
	}
	if n.AutoPauseFiles {
		m.Timeouts.OnTimeoutMode = v1alpha1.PauseHibernate
	}
	switch {
	case n.AutoResume && n.AutoResumeFiles:
		m.Timeouts.AutoResume = v1alpha1.AutoResumeAlways
	case n.AutoResume:
		m.Timeouts.AutoResume = v1alpha1.AutoResumeWithMemory
	}
	// Users of E2B expect no end before the timeout. A pool may still ask for one.
	m.Idle = func(name string) *metav1.Duration {
		if p, ok := x.index.Pool(n.Namespace, name); ok && p.Spec.IdleTimeout != nil {
			return nil
		}
		return &metav1.Duration{}
	}
	return m, nil
}

// createError turns an error of the request path into package restapi's, as
// docs/design/no-pod.md lists them. Any other stays as it is: a failure of ours.
func createError(err error) error {
	// The errors' own texts name pods, which clients must not see.
	var invalid *routing.InvalidError
	switch {
	case errors.Is(err, routing.ErrNoCapacity), errors.Is(err, routing.ErrNoMember),
		errors.Is(err, routing.ErrDraining): // not here, nothing was made, try again
		return fmt.Errorf("%w: %w", restapi.ErrNoCapacity, err)
	case errors.Is(err, routing.ErrPoolNotFound):
		return fmt.Errorf("%w: %w", restapi.Invalidf("the template's pool is gone"), err)
	case errors.As(err, &invalid):
		return fmt.Errorf("%w: %w", restapi.Invalidf("%s", invalid.Reason), err)
	case errors.Is(err, files.ErrMismatch):
		return fmt.Errorf("%w: %w", restapi.Invalidf("%s", files.ErrMismatch.Error()), err)
	case errors.Is(err, routing.ErrSandboxLimit):
		return fmt.Errorf("%w: %w", restapi.ErrQuota, err)
	}
	return err
}
