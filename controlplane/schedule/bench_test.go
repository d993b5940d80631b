package schedule

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/test/kubetest"
)

// benchRig is a scheduler on a real API server. Its floor is the same PATCH sent
// bare, to pods of the same kind, in the same run.
type benchRig struct {
	*PoolScheduler
	c  client.Client
	ns string
	n  int
}

func newBenchRig(b *testing.B) *benchRig {
	b.Helper()
	c, ns := kubetest.Client(b), kubetest.Namespace(b)
	r := &benchRig{PoolScheduler: NewPoolScheduler(ns, "pool", "", "", c), c: c, ns: ns}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done })
	b.Logf("%s/%s, %d CPUs, one API server and etcd on the same machine", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	return r
}

func (r *benchRig) pods(b *testing.B, n int) []*corev1.Pod {
	b.Helper()
	var pods []*corev1.Pod
	for range n {
		r.n++
		pods = append(pods, realIdle(b, r.c, r.ns, fmt.Sprint("p", r.n)))
	}
	return pods
}

func (r *benchRig) bare(b *testing.B, pod *corev1.Pod) {
	if err := r.c.Patch(context.Background(), realClaim(pod, "s").object(), realClaim(pod, "s").Patch()); err != nil {
		b.Error(err)
	}
}

func (r *benchRig) claimOne(b *testing.B) {
	results := make(chan ClaimResult, 1)
	q := &ClaimRequest{SandboxID: "s", ResultCh: results}
	if !r.Enqueue(q) {
		b.Error("queue full")
		return
	}
	if res := <-results; res.Err != nil {
		b.Error(res.Err)
	}
}

func quantile(d []time.Duration, q float64) float64 {
	slices.Sort(d)
	return float64(d[int(q*float64(len(d)-1))].Microseconds())
}

// BenchmarkClaim is one claim at a time without Bind, against a bare PATCH; the
// two take turns.
func BenchmarkClaim(b *testing.B) {
	r := newBenchRig(b)
	var claims, floor []time.Duration
	for i := range b.N {
		b.StopTimer()
		pods := r.pods(b, 2)
		r.Offer(pods[0])
		b.StartTimer()
		timed := func(into *[]time.Duration, f func()) {
			start := time.Now()
			f()
			*into = append(*into, time.Since(start))
		}
		steps := []func(){
			func() { timed(&claims, func() { r.claimOne(b) }) },
			func() { timed(&floor, func() { r.bare(b, pods[1]) }) },
		}
		steps[i%2]()
		steps[1-i%2]()
	}
	b.ReportMetric(quantile(claims, .5), "claim-p50-µs")
	b.ReportMetric(quantile(floor, .5), "bare-p50-µs")
	b.ReportMetric(quantile(claims, .99), "claim-p99-µs")
	b.ReportMetric(quantile(floor, .99), "bare-p99-µs")
}

// BenchmarkClaimBurst is 300 claims at once, against 300 bare PATCHes at once.
func BenchmarkClaimBurst(b *testing.B) {
	const burst = 300
	r := newBenchRig(b)
	at := func(f func(i int)) time.Duration {
		start := time.Now()
		var wg sync.WaitGroup
		for i := range burst {
			wg.Go(func() { f(i) })
		}
		wg.Wait()
		return time.Since(start)
	}
	var claims, floor time.Duration
	for i := range b.N {
		b.StopTimer()
		pods := r.pods(b, 2*burst)
		for _, p := range pods[:burst] {
			r.Offer(p)
		}
		b.StartTimer()
		steps := []func(){
			func() { claims += at(func(int) { r.claimOne(b) }) },
			func() { floor += at(func(i int) { r.bare(b, pods[burst+i]) }) },
		}
		steps[i%2]()
		steps[1-i%2]()
	}
	b.ReportMetric(float64(burst*b.N)/claims.Seconds(), "claims/s")
	b.ReportMetric(float64(burst*b.N)/floor.Seconds(), "bare/s")
}
