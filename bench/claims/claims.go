package claims

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/bench/result"
	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/controlplane/schedule"
)

// Section is the package's.
func Section() suite.Section {
	return suite.Section{Name: "claims", About: "claims, first requests and releases beside bare writes to the same API server", Run: run}
}

// bench is the API server and what runs on it.
type bench struct {
	*suite.Env
	cluster  *suite.Cluster
	upstream *suite.Process
}

func run(ctx context.Context, e *suite.Env) error {
	port, err := suite.FreePort()
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
	if err := b.cluster.MakePool(ctx, barePool); err != nil {
		return err
	}
	for _, c := range []struct {
		name string
		run  func(context.Context) error
	}{{"scheduler", b.scheduler}, {"handover", b.handover}, {"first", b.first}} {
		if !b.Wants(c.name) {
			continue
		}
		if err := c.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// pods makes so many that can be claimed.
func (b *bench) pods(ctx context.Context, pool string, n int) ([]*corev1.Pod, error) {
	pods := make([]*corev1.Pod, n)
	return pods, suite.Each(ctx, n, func(ctx context.Context, i int) (err error) {
		pods[i], err = b.cluster.MakeIdle(ctx, pool)
		return err
	})
}

// claim is the one that a scheduler would send for the pod.
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
		q := &schedule.ClaimRequest{SandboxID: "s" + string(uuid.NewUUID()), ResultCh: make(chan schedule.ClaimResult, 1)}
		if !s.Enqueue(q) {
			return fmt.Errorf("the scheduler's queue is full")
		}
		return (<-q.ResultCh).Err
	}
	for _, n := range append([]int{1}, b.Bursts...) {
		rounds := max(b.Rounds, result.MinSamples)
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
				b.budget("warm")
			} else {
				err = b.atOnce(ctx, fmt.Sprintf("burst-%d", n), count, 0.8, ask, bare)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// oneByOne times both one after the other, in turns.
func (b *bench) oneByOne(ctx context.Context, name string, n int, ours, bare func(context.Context, int) error) error {
	var took [2][]float64
	timed := func(into *[]float64, f func(context.Context, int) error) func(context.Context, int) error {
		return func(ctx context.Context, i int) error {
			start := time.Now()
			err := f(ctx, i)
			*into = append(*into, float64(time.Since(start).Microseconds()))
			return err
		}
	}
	if err := suite.InTurns(ctx, n, timed(&took[0], bare), timed(&took[1], ours)); err != nil {
		return err
	}
	row := "claims/" + name + "/"
	for i, side := range []string{"bare", "sandlane"} {
		b.Add(row+side+"/latency", "µs", "less", took[i]...)
		b.Add(row+side+"/p99", "µs", "less", result.Quantile(took[i], 0.99))
	}
	// Pairs of medians of tens: single writes differ by more than what is asked.
	for from := 0; from+10 <= n; from += 10 {
		b.Add(row+"ratio/p50-vs-bare", "ratio", "less", result.Median(took[1][from:from+10])/result.Median(took[0][from:from+10]))
	}
	b.Add(row+"ratio/p99-vs-bare", "ratio", "less", result.Quantile(took[1], 0.99)/result.Quantile(took[0], 0.99))
	b.Progress("%s: p50 %.1f ms, bare %.1f ms", name, result.Median(took[1])/1000, result.Median(took[0])/1000)
	return nil
}

// budget is what a claim may cost beside its bare writes.
func (b *bench) budget(name string) {
	for row, most := range map[string]float64{"/ratio/p50-vs-bare": 1.3, "/ratio/p99-vs-bare": 3} {
		if r := b.Row("claims/" + name + row); r != nil {
			r.Budget = &result.Budget{Value: most}
		}
	}
}

// atOnce adds one sample of n at once to each side, who begins first alternating
// over the samples.
func (b *bench) atOnce(ctx context.Context, name string, n int, atLeast float64, ours, bare func(context.Context, int) error) error {
	row := "claims/" + name + "/"
	sides := []struct {
		name string
		do   func(context.Context, int) error
	}{{"bare", bare}, {"sandlane", ours}}
	if r := b.Row(row + "bare/rate"); r != nil && len(r.Samples)%2 == 1 {
		sides[0], sides[1] = sides[1], sides[0]
	}
	rate := map[string]float64{}
	for _, side := range sides {
		before, err := suite.CPUByProgram()
		if err != nil {
			return err
		}
		took, err := together(ctx, n, side.do)
		if err != nil {
			return fmt.Errorf("%s: %w", side.name, err)
		}
		after, err := suite.CPUByProgram()
		if err != nil {
			return err
		}
		for _, program := range slices.Sorted(maps.Keys(after)) {
			used := after[program] - before[program]
			b.Add(row+side.name+"/cpu-"+program, "ms a claim", "less", float64(used.Microseconds())/1000/float64(n))
		}
		rate[side.name] = float64(n) / took.Seconds()
		b.Add(row+side.name+"/rate", "claims/s", "more", rate[side.name])
	}
	b.Add(row+"ratio/vs-bare", "ratio", "more", rate["sandlane"]/rate["bare"]).Budget = &result.Budget{More: true, Value: atLeast}
	b.Progress("%s: %.0f/s, bare %.0f/s", name, rate["sandlane"], rate["bare"])
	return nil
}

// together calls f n times at once and returns how long all took.
func together(ctx context.Context, n int, f func(context.Context, int) error) (time.Duration, error) {
	var all sync.WaitGroup
	errs := make(chan error, n)
	start := time.Now()
	for i := range n {
		all.Go(func() { errs <- f(ctx, i) })
	}
	all.Wait()
	took := time.Since(start)
	close(errs)
	for err := range errs {
		if err != nil {
			return took, err
		}
	}
	return took, nil
}
