package cache_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/library/cache"
	"github.com/sandlane/sandlane/library/cache/cachetest"
)

// exampleManager has a sandbox, and no API server.
func exampleManager() *cachetest.MockManager {
	return cachetest.GetMockManager(&testing.T{}, cache.Config{}, sandbox("team", "hello"))
}

// Pausing a sandbox, and waiting until it is: the task comes before the write.
func Example() {
	ctx := context.Background()
	mgr := exampleManager() // a program has one of NewControllerManager
	c, err := cache.NewCache(mgr)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := c.Run(ctx); err != nil {
		fmt.Println(err)
		return
	}
	defer c.Stop(ctx)

	s, err := c.GetClaimedSandbox(ctx, cache.GetClaimedSandboxOptions{Namespace: "team", SandboxID: "hello"})
	if err != nil {
		fmt.Println(err)
		return
	}
	task, err := c.NewSandboxPauseTask(ctx, s)
	if err != nil {
		fmt.Println(err) // such as ErrWaitTaskConflict: another task resumes it
		return
	}
	defer task.Release()
	if err := c.GetClient().Patch(ctx, s.DeepCopy(), writes.Pause(s).Build()); err != nil {
		fmt.Println(err)
		return
	}
	go func() { _ = controller{mgr.API()}.report(ctx, "hello") }() // Sandlane's controller does
	s, err = task.Wait(30 * time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Name, s.Status.Phase)
	// Output: hello Paused
}
