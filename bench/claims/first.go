package claims

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/bench/suite"
)

// writes sends the two writes of a claim over HTTP bare, to objects that no gateway
// watches. more completes the sandbox.
func (b *bench) writes(ctx context.Context, pod *corev1.Pod, more func(*v1alpha1.Sandbox)) error {
	c := claim(pod)
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: c.SandboxID, Finalizers: []string{v1alpha1.FinalizerSandbox}}}
	s.Spec.Namespace, s.Spec.Pool = suite.Namespace, suite.Pool
	s.Spec.Binding = &v1alpha1.Binding{ClaimID: c.ClaimID, PodName: c.PodName, PodUID: string(c.PodUID)}
	more(s)
	if err := b.cluster.CreateUnwatched(ctx, s); err != nil {
		return err
	}
	return b.patch(ctx, c)
}

func firstRequest(s *v1alpha1.Sandbox) { s.Spec.FirstRequest = true }

// first measures first requests over 1 and over 3 gateways, then releases.
func (b *bench) first(ctx context.Context) error {
	for _, n := range []int{1, gateways} {
		if err := b.firstOver(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) firstOver(ctx context.Context, n int) error {
	f, err := b.startFronts(ctx, "claims", n)
	defer f.stop()
	if err != nil {
		return err
	}
	id := func(i int) string { return fmt.Sprintf("first%d-%d", n, i) }
	err = b.measureWay(ctx, f, way{
		rows: fmt.Sprintf("first-%%d-gateways-%d", n), pool: suite.Pool,
		ask:  func(ctx context.Context, i int) error { return b.must(ctx, f.urls[i%n], id(i)) },
		bare: firstRequest,
	})
	if err != nil || n < gateways {
		return err
	}
	return b.release(ctx, f, id)
}

// way is a kind of HTTP request that claims a pod.
type way struct {
	rows string // format of the rows' names, with the number at once
	pool string
	ask  func(ctx context.Context, i int) error // sends the i-th request
	bare func(*v1alpha1.Sandbox)                // completes the sandbox of the bare writes in the same way
}

// measureWay measures a way one by one and in bursts, in turns with the bare writes.
func (b *bench) measureWay(ctx context.Context, f *fronts, w way) error {
	made := 0
	for _, burst := range append([]int{1}, b.Bursts...) {
		count, rounds := burst, b.Judged
		if burst == 1 {
			count, rounds = b.Claims, 1
		}
		name := fmt.Sprintf(w.rows, burst)
		for range rounds {
			if _, err := b.pods(ctx, w.pool, count); err != nil {
				return err
			}
			bares, err := b.unwatched(ctx, w.pool, count)
			if err != nil {
				return err
			}
			from := made
			made += count
			ours := func(ctx context.Context, i int) error { return w.ask(ctx, from+i) }
			bare := func(ctx context.Context, i int) error { return b.writes(ctx, bares[i], w.bare) }
			if burst == 1 {
				err = b.oneByOne(ctx, name, count, ours, bare)
			} else {
				err = b.burst(ctx, f, name, count, ours, bare)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// burst measures n requests at once, and how many pods gateways tried for each request: of
// gateways that try the same pod at once all but one lose their write.
func (b *bench) burst(ctx context.Context, f *fronts, name string, n int, ours, bare func(context.Context, int) error) error {
	if err := f.connect(ctx, n); err != nil { // so that the burst does not measure connecting
		return err
	}
	before, err := f.tries(ctx)
	if err != nil {
		return err
	}
	if err := b.atOnce(ctx, name, n, ours, bare); err != nil {
		return err
	}
	after, err := f.tries(ctx)
	if err != nil {
		return err
	}
	b.Add("claims/"+name+"/sandlane/tries", "pods a claim", "less", (after-before)/float64(n))
	return nil
}
