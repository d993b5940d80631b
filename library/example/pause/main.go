// Command pause is a Go program of your own, in a module of its own, that uses Sandlane's
// library: it pauses a running sandbox, waits until nothing of it runs, and prints its pod.
//
//	pause NAMESPACE SANDBOX
//
// It needs a kubeconfig with the rights that package cache names, and to get pods and patch
// sandboxes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/library/cache"
	"github.com/sandlane/sandlane/library/claims"
)

// patience is how long the sandbox may take to be paused.
const patience = 30 * time.Second

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: pause NAMESPACE SANDBOX")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := pause(ctx, os.Args[1], os.Args[2])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func pause(ctx context.Context, namespace, id string) error {
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	mgr, err := cache.NewControllerManager(cfg, cache.ManagerOptions{})
	if err != nil {
		return fmt.Errorf("make a manager: %w", err)
	}
	c, err := cache.NewCache(mgr)
	if err != nil {
		return fmt.Errorf("make a cache: %w", err)
	}
	if err := c.Run(ctx); err != nil {
		return fmt.Errorf("fill the cache: %w", err)
	}
	defer c.Stop(context.WithoutCancel(ctx))

	s, err := c.GetClaimedSandbox(ctx, cache.GetClaimedSandboxOptions{Namespace: namespace, SandboxID: id})
	if err != nil {
		return fmt.Errorf("find sandbox %s: %w", id, err)
	}
	task, err := c.NewSandboxPauseTask(ctx, s) // before the write, so that no resume of this process crosses it
	if err != nil {
		return fmt.Errorf("pause sandbox %s: %w", id, err)
	}
	defer task.Release()
	if err := c.GetClient().Patch(ctx, s.DeepCopy(), writes.Pause(s).Build()); err != nil {
		return fmt.Errorf("pause sandbox %s: %w", id, err)
	}
	if _, err := task.Wait(patience); err != nil {
		return fmt.Errorf("wait until sandbox %s is paused: %w", id, err)
	}
	pod, err := claims.FindClaimedPodBySandboxID(ctx, c.GetAPIReader(), namespace, id)
	if err != nil {
		return fmt.Errorf("find the pod of sandbox %s: %w", id, err)
	}
	fmt.Println(id, "is paused in pod", pod.Name)
	return nil
}
