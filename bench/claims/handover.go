package claims

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/util/uuid"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/controlplane/schedule"
)

// handover measures pods that come while claims wait for them: first in the
// scheduler, from the pod to the answer; then through a gateway and its Envoy,
// from the write that makes a pod idle to the first byte of a parked request.
func (b *bench) handover(ctx context.Context) error {
	if err := b.offered(ctx); err != nil {
		return err
	}
	return b.parked(ctx)
}

func (b *bench) offered(ctx context.Context) error {
	const pool = "handover"
	if err := b.cluster.MakePool(ctx, pool); err != nil {
		return err
	}
	s := schedule.NewPoolScheduler(suite.Namespace, pool, "", "", b.cluster.Client)
	running, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { s.Run(running) })
	defer done.Wait()
	defer stop()
	pods, err := b.pods(ctx, pool, 2*b.Claims)
	if err != nil {
		return err
	}
	// All claims wait before the first pod comes; the claim that waits longest gets it.
	results := make(chan schedule.ClaimResult, b.Claims)
	for range b.Claims {
		if !s.Enqueue(&schedule.ClaimRequest{SandboxID: "h" + string(uuid.NewUUID()), ResultCh: results}) {
			return fmt.Errorf("the scheduler's queue is full")
		}
	}
	ours := func(_ context.Context, i int) error {
		s.Offer(pods[i])
		return (<-results).Err
	}
	bare := func(ctx context.Context, i int) error { return b.patch(ctx, claim(pods[b.Claims+i])) }
	return b.oneByOne(ctx, "handover", b.Claims, ours, bare)
}

// parked measures requests that wait in a gateway whose pool is empty. The bare side sends
// the same three writes with no request waiting: ready, Sandbox, claim.
func (b *bench) parked(ctx context.Context) error {
	f, err := b.startFronts(ctx, "handover", 1)
	defer f.stop()
	if err != nil {
		return err
	}
	unready := func(made func(context.Context, string) (*corev1.Pod, error)) ([]*corev1.Pod, error) {
		return many(ctx, b.Claims, func(ctx context.Context) (*corev1.Pod, error) { return made(ctx, suite.Pool) })
	}
	ourPods, err := unready(b.cluster.MakeUnready)
	if err != nil {
		return err
	}
	barePods, err := unready(b.cluster.MakeUnwatched)
	if err != nil {
		return err
	}
	var waiting sync.WaitGroup
	defer waiting.Wait()
	asking, stop := context.WithCancel(ctx)
	defer stop()
	answered := make(chan error, b.Claims)
	for i := range b.Claims {
		waiting.Go(func() { answered <- b.must(asking, f.urls[0], fmt.Sprintf("handover-%d", i)) })
	}
	if err := f.gateways[0].AwaitParked(ctx, b.Claims); err != nil {
		return err
	}
	ours := func(ctx context.Context, i int) error {
		if err := b.cluster.MakeReady(ctx, ourPods[i]); err != nil {
			return err
		}
		return <-answered
	}
	bare := func(ctx context.Context, i int) error {
		if err := b.cluster.MakeReady(ctx, barePods[i]); err != nil {
			return err
		}
		return b.writes(ctx, barePods[i], firstRequest)
	}
	return b.oneByOne(ctx, "handover-parked", b.Claims, ours, bare)
}
