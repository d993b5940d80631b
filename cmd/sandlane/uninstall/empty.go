package uninstall

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// What Empty refuses for at its first look, before it has changed anything. What comes after
// that, as from a request that takes a pod meanwhile, it waits for.
var (
	// ErrLive: sandboxes live that may not be ended.
	ErrLive = errors.New("sandboxes live")
	// ErrKept: snapshots are kept that may not be deleted.
	ErrKept = errors.New("snapshots are kept")
)

// Options of both steps.
type Options struct {
	// Client reads live.
	Client client.Client
	// EndSandboxes allows Empty to end sandboxes that live.
	EndSandboxes bool
	// DeleteCheckpoints allows Empty to delete snapshots.
	DeleteCheckpoints bool
	// Namespace is the system namespace.
	Namespace string
	// Keys has Leases delete the gateways' own keys as well.
	Keys bool
	// Every is the time between two looks; default a second.
	Every time.Duration
	// Progress is called with one line for each step; nil: not called.
	Progress func(line string)
}

func (o *Options) complete() {
	if o.Every == 0 {
		o.Every = time.Second
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
}

// emptying is one call of Empty.
type emptying struct {
	Options
	changed bool            // something was ended, deleted or emptied
	late    []string        // how to end or delete what was made since the first look
	living  map[string]bool // the sandboxes that live and may not be ended
}

// Empty returns when no sandbox, no checkpoint and no pod of a pool is left.
func Empty(ctx context.Context, options Options) error {
	options.complete()
	o := &emptying{Options: options}
	return o.until(ctx, func() (left string, err error) {
		o.late = nil
		checkpoints, err := o.checkpoints(ctx)
		if err != nil {
			return "", err
		}
		sandboxes, err := o.endSandboxes(ctx)
		if err != nil {
			return "", err
		}
		if err := o.deleteCheckpoints(ctx, checkpoints); err != nil {
			return "", err
		}
		if err := o.settleEnvs(ctx); err != nil {
			return "", err
		}
		if err := o.scaleDown(ctx); err != nil {
			return "", err
		}
		pods, err := o.pods(ctx)
		if err != nil {
			return "", err
		}
		if sandboxes == 0 && pods == 0 && len(checkpoints) == 0 {
			return "", nil
		}
		left = fmt.Sprintf("%d sandboxes and %d pods of pools", sandboxes, pods)
		if n := len(checkpoints); n > 0 {
			left += fmt.Sprintf(", and %d checkpoints, which a controller lets go", n)
		}
		if len(o.late) > 0 {
			left += "; some were made since this began: they go with sandlane uninstall empty " + strings.Join(o.late, " ")
		}
		return left, nil
	})
}

// until calls look until nothing is left. Errors that the next look may not meet
// again are tried again; a refusal is final.
func (o *Options) until(ctx context.Context, look func() (left string, err error)) error {
	tick := time.NewTicker(o.Every)
	defer tick.Stop()
	said := ""
	for {
		left, err := look()
		switch {
		case errors.Is(err, ErrLive), errors.Is(err, ErrKept):
			return err
		case err == nil && left == "":
			return nil
		case err != nil:
			left = err.Error()
		}
		if left != said {
			o.Progress("left: " + left)
			said = left
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until nothing is left: %w; left: %s", context.Cause(ctx), left)
		case <-tick.C:
		}
	}
}

// endSandboxes ends what lives and deletes all, and returns how many there are.
func (o *emptying) endSandboxes(ctx context.Context) (int, error) {
	var all v1alpha1.SandboxList
	if err := o.Client.List(ctx, &all); err != nil {
		if gone(err) {
			return 0, nil
		}
		return 0, fmt.Errorf("list sandboxes: %w", err)
	}
	live := 0
	for i := range all.Items {
		if all.Items[i].Spec.End == nil {
			live++
		}
	}
	if live > 0 && !o.EndSandboxes && !o.changed {
		return 0, fmt.Errorf("%w (%d): end them first (sandlane uninstall empty --end-sandboxes), then uninstall again", ErrLive, live)
	}
	o.living = map[string]bool{}
	if live > 0 && !o.EndSandboxes {
		o.late = append(o.late, "--end-sandboxes")
	}
	for i := range all.Items {
		s := &all.Items[i]
		if s.Spec.End == nil && !o.EndSandboxes {
			o.living[s.Name] = true
			continue
		}
		o.changed = true
		if s.Spec.End == nil {
			err := writes.EndSandbox(ctx, o.Client, s.Name, v1alpha1.EndReleased, "Sandlane was uninstalled", writes.OfUID(s.UID))
			if err != nil && !errors.Is(err, writes.ErrStale) && !apierrors.IsNotFound(err) {
				return 0, fmt.Errorf("end sandbox %s: %w", s.Name, err)
			}
			o.Progress("ended the sandbox " + s.Name)
		}
		if s.DeletionTimestamp != nil {
			continue
		}
		err := o.Client.Delete(ctx, s, client.Preconditions{UID: &s.UID})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return 0, fmt.Errorf("delete sandbox %s: %w", s.Name, err)
		}
	}
	return len(all.Items), nil
}

// settleEnvs makes no env ask for replicas: they would be given back to its pools.
func (o *emptying) settleEnvs(ctx context.Context) error {
	var envs v1alpha1.SandboxEnvList
	if err := o.Client.List(ctx, &envs); err != nil {
		if gone(err) {
			return nil
		}
		return fmt.Errorf("list envs: %w", err)
	}
	for i := range envs.Items {
		e := &envs.Items[i]
		before := e.DeepCopy()
		was, changed := askForNothing(e)
		if !changed {
			continue
		}
		if err := o.Client.Patch(ctx, e, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				continue // the next look
			}
			return fmt.Errorf("empty the env %s/%s: %w", e.Namespace, e.Name, err)
		}
		o.changed = true
		o.Progress(fmt.Sprintf("env %s/%s asks for no replicas now, and is not scaled any more; %s", e.Namespace, e.Name, was))
	}
	return nil
}

// askForNothing takes all replicas from an env, and switches its autoscaling off. It
// returns what it asked for, to be set again by hand, and whether that was anything.
func askForNothing(e *v1alpha1.SandboxEnv) (was string, changed bool) {
	was = "it asked for"
	for c := range e.Spec.Clusters {
		for m := range e.Spec.Clusters[c].Members {
			member := &e.Spec.Clusters[c].Members[m]
			switch s := &member.Spec; {
			case s.Replicas == nil:
				s.Replicas, changed = new(int32), true
			case *s.Replicas != 0:
				was += fmt.Sprintf(" %d of %s", *s.Replicas, member.Name)
				s.Replicas, changed = new(int32), true
			}
		}
	}
	if was == "it asked for" {
		was += " none"
	}
	if a := e.Spec.Autoscaling; a != nil && a.Enabled {
		a.Enabled, changed = false, true
		was += ", and was scaled"
	}
	return was, changed
}

// scaleDown gives each pool no replicas.
func (o *emptying) scaleDown(ctx context.Context) error {
	var pools v1alpha1.SandboxPoolList
	if err := o.Client.List(ctx, &pools); err != nil {
		if gone(err) {
			return nil
		}
		return fmt.Errorf("list pools: %w", err)
	}
	for i := range pools.Items {
		p := &pools.Items[i]
		if p.Spec.Replicas == 0 {
			continue
		}
		was := p.Spec.Replicas
		before := p.DeepCopy()
		p.Spec.Replicas = 0
		if err := o.Client.Patch(ctx, p, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				continue // the next look
			}
			return fmt.Errorf("empty the pool %s/%s: %w", p.Namespace, p.Name, err)
		}
		o.changed = true
		o.Progress(fmt.Sprintf("pool %s/%s has no replicas now; it had %d", p.Namespace, p.Name, was))
	}
	return nil
}

// pods counts the pods of pools.
func (o *Options) pods(ctx context.Context) (int, error) {
	var pods corev1.PodList
	if err := o.Client.List(ctx, &pods, client.HasLabels{v1alpha1.LabelPool}); err != nil {
		return 0, fmt.Errorf("list the pods of pools: %w", err)
	}
	return len(pods.Items), nil
}

// gone reports whether the API server does not know a kind: its CRD is deleted.
func gone(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err)
}
