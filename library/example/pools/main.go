// Command pools is a Go program of your own, in a module of its own, that keeps the pods of
// SandboxPools by itself, claims one for a sandbox, and releases it. It runs no gateway and
// no sandlane controller: docs/programs.md says what that leaves to the program.
//
//	pools NAMESPACE POOL SANDBOX
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/library/claims"
	"github.com/sandlane/sandlane/reconcilers"
	"github.com/sandlane/sandlane/reconcilers/idletimeout"
	"github.com/sandlane/sandlane/reconcilers/podstate"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool"
)

// patience is how long a pod may take to be there.
const patience = time.Minute

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: pools NAMESPACE POOL SANDBOX")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1], os.Args[2], os.Args[3])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// activity is a source that knows of no use: every sandbox is released at its idle timeout.
type activity struct{}

func (activity) Poll(context.Context) error                          { return nil }
func (activity) LastActive(string, string) (last time.Time, ok bool) { return time.Time{}, false }

// newManager sets up the reconcilers: they bring the indexes that they read by.
func newManager() (ctrl.Manager, error) {
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	cfg.QPS = -1 // a claim held back in the client counts as one that may have been sent
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Cache: cache.Options{ByObject: reconcilers.CacheByObject()}, Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return nil, fmt.Errorf("make a manager: %w", err)
	}
	pools := &sandboxpool.SandboxPoolReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme(), Recorder: mgr.GetEventRecorder("pools")}
	idle := idletimeout.NewIdleTimeoutReconciler(mgr.GetClient(), nil, 0, activity{})
	return mgr, errors.Join(pools.SetupWithManager(mgr, controller.Options{}), idle.SetupWithManager(mgr))
}

func run(ctx context.Context, namespace, pool, id string) error {
	log.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	mgr, err := newManager()
	if err != nil {
		return err
	}
	live, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	scheduler := schedule.NewPoolScheduler(namespace, pool, "", "", live)
	pods, err := mgr.GetCache().GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	offer := func(o any) {
		if p, ok := o.(*corev1.Pod); ok && p.Namespace == namespace && p.Labels[v1alpha1.LabelPool] == pool {
			scheduler.Offer(p)
		}
	}
	if _, err := pods.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: offer, UpdateFunc: func(_, o any) { offer(o) },
		DeleteFunc: func(o any) {
			if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok { // it went while the watch was broken
				o = last.Obj
			}
			if p, ok := o.(*corev1.Pod); ok {
				scheduler.Forget(p.UID)
			}
		},
	}); err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	go scheduler.Run(ctx)
	err = claim(ctx, live, scheduler, namespace, pool, id)
	scheduler.Shutdown()
	stop()
	return errors.Join(err, <-ended)
}

// claim makes a sandbox, claims a pod for it, and releases that.
func claim(ctx context.Context, c client.Client, scheduler *schedule.PoolScheduler, namespace, pool, id string) error {
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: v1alpha1.SandboxSpec{
		Namespace: namespace, Pool: pool, Team: "example", Metadata: map[string]string{"user": "somebody"},
	}}
	if err := c.Create(ctx, s); err != nil {
		return fmt.Errorf("make sandbox %s: %w", id, err)
	}
	results := make(chan schedule.ClaimResult, 1)
	accepted := scheduler.Enqueue(&schedule.ClaimRequest{
		Ctx: ctx, SandboxID: id, Deadline: time.Now().Add(patience), ResultCh: results,
		Bind: func(ctx context.Context, pod *corev1.Pod) error {
			before := s.DeepCopy()
			s.Spec.Binding = schedule.BindingOf(pod)
			return c.Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		},
	})
	if !accepted {
		return errors.New("the queue of claims is full")
	}
	result := <-results
	if result.Err != nil {
		return fmt.Errorf("claim a pod for sandbox %s: %w", id, result.Err)
	}
	pod, err := claims.FindClaimedPodBySandboxID(ctx, c, namespace, id)
	if err != nil {
		return fmt.Errorf("find the pod of sandbox %s: %w", id, err)
	}
	base, ok := claims.SandboxBaseOf(pod, s)
	if !ok {
		return fmt.Errorf("pod %s does not back sandbox %s", pod.Name, id)
	}
	fmt.Printf("claimed: %s of %s, user %s, images %v, %s CPU\n", base.ID, base.Team, base.User, base.Images, base.CPU.String())
	stopped, err := sandboxpool.ReleaseSandboxPod(ctx, c, pod, sandboxpool.ReleaseSandboxPodOptions{})
	if err != nil {
		return fmt.Errorf("release the pod of sandbox %s: %w", id, err)
	}
	record := podstate.CaptureSandboxStopRecord(stopped, nil)
	fmt.Printf("released: %s, images %v\n", record.StopReason, record.Images)
	return nil
}
