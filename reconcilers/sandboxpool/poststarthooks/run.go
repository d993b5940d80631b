package poststarthooks

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/backoff"
)

const (
	defaultTimeout = 10 * time.Second
	firstPause     = time.Second
	longestPause   = 30 * time.Second
)

// Runner does what single hooks ask for. An error is one try's.
type Runner interface {
	Exec(ctx context.Context, pod *corev1.Pod, container string, command []string) error
	Post(ctx context.Context, pod *corev1.Pod, hook *v1alpha1.HTTPPostHook) error
}

// Failure is a hook that failed for good.
type Failure struct {
	Hook  string
	Tries int
	Err   error
}

func (f *Failure) Error() string {
	return fmt.Sprintf("post-start hook %s failed after %d tries: %v", f.Hook, f.Tries, f.Err)
}

// Unwrap gives the last try's error.
func (f *Failure) Unwrap() error { return f.Err }

// Run runs the hooks in order. The first that fails for good ends it with its
// Failure, unless its policy ignores that; the ignored ones are returned too.
func Run(ctx context.Context, runner Runner, pod *corev1.Pod, hooks []v1alpha1.PostStartHook) (ignored []*Failure, err error) {
	for i := range hooks {
		failure := insist(ctx, runner, pod, &hooks[i])
		switch {
		case failure == nil:
		case hooks[i].FailurePolicy == v1alpha1.HookIgnore && ctx.Err() == nil:
			ignored = append(ignored, failure)
		default:
			return ignored, failure
		}
	}
	return ignored, nil
}

// insist tries one hook as often as it may.
func insist(ctx context.Context, runner Runner, pod *corev1.Pod, hook *v1alpha1.PostStartHook) *Failure {
	delays := backoff.Doubling(firstPause, longestPause)
	for tries := 1; ; tries++ {
		err := once(ctx, runner, pod, hook)
		if err == nil {
			return nil
		}
		if tries > int(hook.Retries) || !backoff.Sleep(ctx, delays.Step()) {
			return &Failure{hook.Name, tries, err}
		}
	}
}

func once(ctx context.Context, runner Runner, pod *corev1.Pod, hook *v1alpha1.PostStartHook) error {
	timeout := defaultTimeout
	if hook.TimeoutSeconds > 0 {
		timeout = time.Duration(hook.TimeoutSeconds) * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var err error
	switch {
	case hook.Exec != nil:
		container := hook.Exec.Container
		if container == "" {
			container = pod.Spec.Containers[0].Name
		}
		err = runner.Exec(ctx, pod, container, hook.Exec.Command)
	case hook.HTTPPost != nil:
		err = runner.Post(ctx, pod, hook.HTTPPost)
	default:
		err = errors.New("it has neither exec nor httpPost")
	}
	if err != nil && ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s: %w", timeout, err)
	}
	return err
}
