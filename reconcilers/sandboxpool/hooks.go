package sandboxpool

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/podstate"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool/podtemplate"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool/poststarthooks"
)

const (
	readyHookTime = 30 * time.Second
	// hookPoll is how often running hooks are looked at.
	hookPoll = 200 * time.Millisecond
)

// hookRun is one claim's hooks. It is running until done is closed; then err is
// their outcome.
type hookRun struct {
	claim  string
	cancel context.CancelFunc
	until  time.Time
	done   chan struct{}
	err    error
}

// hookRuns are the hooks of all claims, by pod. It is safe for concurrent use.
type hookRuns struct {
	mu   sync.Mutex
	runs map[types.UID]*hookRun
}

// of returns the run of the pod's claim, begun if there is none. ctx must be that
// of the controller's life.
func (h *hookRuns) of(ctx context.Context, pod *corev1.Pod, left time.Duration, run func(context.Context) error) *hookRun {
	h.mu.Lock()
	defer h.mu.Unlock()
	claim, now := pod.Annotations[v1alpha1.AnnotationClaim], time.Now()
	if r := h.runs[pod.UID]; r != nil && r.claim == claim {
		return r
	}
	for uid, r := range h.runs {
		if r.claim == "" || now.Sub(r.until) > time.Minute { // its pod is gone
			delete(h.runs, uid)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	r := &hookRun{claim: claim, cancel: cancel, until: now.Add(left), done: make(chan struct{})}
	h.runs[pod.UID] = r
	go func() {
		defer close(r.done)
		defer cancel()
		r.err = run(ctx)
	}()
	return r
}

// forget ends the pod's hooks, if any run.
func (h *hookRuns) forget(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.runs[uid]; r != nil {
		r.cancel()
		delete(h.runs, uid)
	}
}

// hooks runs the pod's post-start hooks beside the reconciler, and turns the pod
// running, or failed, once they are done.
func (r *SandboxPoolReconciler) hooks(ctx context.Context, pool *v1alpha1.SandboxPool, tpl *podtemplate.Template, pod *corev1.Pod, left time.Duration) (time.Duration, error) {
	list, err := podtemplate.HooksOf(pod)
	if err == nil && r.HookRunner == nil {
		err = errors.New("this controller cannot run post-start hooks")
	}
	if err != nil {
		return 0, r.toFailed(ctx, pool, tpl, pod, decision{reason: podstate.ReasonHookFailed, message: err.Error()})
	}
	run := r.running.of(ctx, pod, left, func(ctx context.Context) error {
		ignored, err := poststarthooks.Run(ctx, r.HookRunner, pod, list)
		for _, f := range ignored {
			log.FromContext(ctx).Info("a post-start hook failed, and is ignored", "pod", pod.Name, "hook", f.Hook, "tries", f.Tries)
		}
		return err
	})
	select {
	case <-run.done:
	default:
		return hookPoll, nil
	}
	// The run stays until the watch shows that the pod is not starting any more: forgotten before,
	// it would begin anew in a sandbox that serves.
	if run.err != nil {
		return 0, r.toFailed(ctx, pool, tpl, pod, decision{reason: podstate.ReasonHookFailed, message: run.err.Error()})
	}
	return 0, r.toRunning(ctx, pod)
}

// callReadyHook calls the SandboxReadyHook beside the reconciler.
func (r *SandboxPoolReconciler) callReadyHook(ctx context.Context, pod *corev1.Pod) {
	if r.SandboxReadyHook == nil {
		return
	}
	pod = pod.DeepCopy() // the cache's is read alone
	r.readyHooks.begin(func() {
		ctx, cancel := context.WithTimeout(ctx, readyHookTime)
		defer cancel()
		r.SandboxReadyHook.OnSandboxReady(ctx, pod)
	})
}

// background runs goroutines beside the reconciler; the manager waits for them at its end. The
// zero value is ready. It is safe for concurrent use.
type background struct {
	mu      sync.Mutex // guards ended
	ended   bool
	running sync.WaitGroup
}

// begin runs f, unless end was called.
func (b *background) begin(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.running.Go(f)
	}
}

// end returns when nothing runs any more.
func (b *background) end() {
	b.mu.Lock()
	b.ended = true
	b.mu.Unlock()
	b.running.Wait()
}

// Start returns when ctx is over and nothing runs any more. It is a manager.Runnable.
func (b *background) Start(ctx context.Context) error {
	<-ctx.Done()
	b.end()
	return nil
}
