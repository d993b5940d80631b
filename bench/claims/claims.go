package claims

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/test/ports"
)

// Section returns the section of this package.
func Section() suite.Section {
	return suite.Section{Name: "claims", About: "claims, first requests and releases beside bare writes to the same API server", Run: run}
}

// bench is the cluster that this section measures.
type bench struct {
	*suite.Env
	cluster  *suite.Cluster
	upstream *suite.Process
}

func run(ctx context.Context, e *suite.Env) error {
	port, err := ports.Free()
	if err != nil {
		return err
	}
	b := &bench{Env: e}
	b.upstream, err = e.Start(ctx, "claims-upstream", []string{"GOMAXPROCS=1"}, suite.Answers("tcp", fmt.Sprintf("127.0.0.1:%d", port)),
		e.Self, "upstream", "--port", strconv.Itoa(port))
	if err != nil {
		return err
	}
	defer b.upstream.Stop()
	if b.cluster, err = e.StartCluster(ctx, port); err != nil {
		return err
	}
	defer b.cluster.Close()
	if err := b.cluster.AllowUnwatched(); err != nil {
		return err
	}
	for _, c := range []struct {
		name string
		run  func(context.Context) error
	}{{"scheduler", b.scheduler}, {"first", b.first}, {"create", b.create}, {"pause", b.pause}} {
		if !b.Wants(c.name) {
			continue
		}
		if err := c.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// many calls one n times, a few at a time, and returns the pods.
func many(ctx context.Context, n int, one func(context.Context) (*corev1.Pod, error)) ([]*corev1.Pod, error) {
	pods := make([]*corev1.Pod, n)
	return pods, suite.Each(ctx, n, func(ctx context.Context, i int) (err error) {
		pods[i], err = one(ctx)
		return err
	})
}

// pods makes n pods that can be claimed.
func (b *bench) pods(ctx context.Context, pool string, n int) ([]*corev1.Pod, error) {
	return many(ctx, n, func(ctx context.Context) (*corev1.Pod, error) { return b.cluster.MakeIdle(ctx, pool) })
}

// unwatched makes n pods for the bare writes beside gateways.
func (b *bench) unwatched(ctx context.Context, pool string, n int) ([]*corev1.Pod, error) {
	return many(ctx, n, func(ctx context.Context) (*corev1.Pod, error) {
		pod, err := b.cluster.MakeUnwatched(ctx, pool)
		if err == nil {
			err = b.cluster.MakeReady(ctx, pod)
		}
		return pod, err
	})
}

// claim returns the claim that a scheduler would send for the pod.
func claim(pod *corev1.Pod) schedule.Claim {
	return schedule.Claim{
		SandboxID: "x" + string(uuid.NewUUID()), ClaimID: schedule.NewClaimID(),
		Namespace: pod.Namespace, PodName: pod.Name, PodUID: pod.UID, Phase: v1alpha1.PodRunning,
	}
}

// patch sends a claim bare.
func (b *bench) patch(ctx context.Context, c schedule.Claim) error {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = c.Namespace, c.PodName
	return b.cluster.Client.Patch(ctx, pod, c.Patch())
}

// scheduler measures claims without a binding. Its pool has no gateway.
func (b *bench) scheduler(ctx context.Context) error {
	const pool = "scheduler"
	if err := b.cluster.MakePool(ctx, pool); err != nil {
		return err
	}
	s := schedule.NewPoolScheduler(suite.Namespace, pool, "", "", b.cluster.Client)
	running, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { s.Run(running) })
	defer done.Wait()
	defer stop()
	ask := func(context.Context, int) error {
		results := make(chan schedule.ClaimResult, 1)
		if !s.Enqueue(&schedule.ClaimRequest{SandboxID: "s" + string(uuid.NewUUID()), ResultCh: results}) {
			return fmt.Errorf("the scheduler's queue is full")
		}
		return (<-results).Err
	}
	for _, n := range append([]int{1}, b.Bursts...) {
		rounds := b.Judged
		if n == 1 {
			rounds = 1
		}
		for range rounds {
			count := n
			if n == 1 {
				count = b.Claims
			}
			pods, err := b.pods(ctx, pool, 2*count)
			if err != nil {
				return err
			}
			for _, p := range pods[:count] {
				s.Offer(p)
			}
			bare := func(ctx context.Context, i int) error { return b.patch(ctx, claim(pods[count+i])) }
			if n == 1 {
				err = b.oneByOne(ctx, "warm", count, ask, bare)
			} else {
				err = b.atOnce(ctx, fmt.Sprintf("burst-%d", n), count, ask, bare)
			}
			if err != nil {
				return err
			}
			for _, p := range pods[:count] { // no watch tells the scheduler that bare claims have taken these
				s.Forget(p.UID)
			}
		}
	}
	return nil
}
