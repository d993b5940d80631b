package idle

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"time"

	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/gateway/index"
	"github.com/sandlane/sandlane/routing"
)

// Section returns the section of this package.
func Section() suite.Section {
	return suite.Section{Name: "idle", About: "unit costs of sandboxes that are not used: polls and memory", Run: run}
}

func run(ctx context.Context, e *suite.Env) error {
	if err := poll(ctx, e); err != nil {
		return err
	}
	if err := indexMemory(ctx, e); err != nil {
		return err
	}
	if err := informerMemory(ctx, e); err != nil {
		return err
	}
	return sizes(e)
}

func claim(i int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", i, i) }

// indexMemory fills the gateway's index.
func indexMemory(ctx context.Context, e *suite.Env) error {
	pods, err := filled(ctx, fleet{pods: e.Objects})
	if err != nil {
		return err
	}
	both, err := filled(ctx, fleet{pods: e.Objects, sandboxes: e.Objects})
	if err != nil {
		return err
	}
	n := float64(e.Objects)
	e.Add("idle/index/sandlane/pod", "bytes", "less", pods/n)
	e.Add("idle/index/sandlane/sandbox", "bytes", "less", (both-pods)/n)
	e.Progress("index: %.0f bytes a pod, %.0f a sandbox", pods/n, (both-pods)/n)
	return nil
}

// filled returns the bytes of an index that has seen all of the fleet.
func filled(ctx context.Context, f fleet) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	before := heap()
	x := index.New(index.Options{Client: f})
	done := make(chan error, 1)
	go func() { done <- x.Start(ctx) }()
	if err := x.WaitSynced(ctx); err != nil {
		return 0, err
	}
	after := heap()
	if a := x.Resolve(sandboxID(0)); f.sandboxes > 0 && a.State != routing.Running {
		return 0, fmt.Errorf("the index says of a sandbox that it is %v", a.State)
	}
	cancel()
	return after - before, <-done
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// sizes adds the bytes of an object in an event of a watch.
func sizes(e *suite.Env) error {
	p, err := pod(1).Marshal()
	if err != nil {
		return fmt.Errorf("encode a pod: %w", err)
	}
	s, err := json.Marshal(sandbox(1))
	if err != nil {
		return fmt.Errorf("encode a sandbox: %w", err)
	}
	e.Add("idle/wire/sandlane/pod", "bytes", "less", float64(len(p)))
	e.Add("idle/wire/sandlane/sandbox", "bytes", "less", float64(len(s)))
	return nil
}
