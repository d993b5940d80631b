package claims

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/bench/result"
	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/ending"
	"github.com/sandlane/sandlane/envoy"
)

const gateways = 3

// fronts are gateways with their Envoys.
type fronts struct {
	urls     []string
	gateways []*suite.Gateway
	running  []*suite.Process // in the order in which they are stopped
}

func (f *fronts) stop() {
	for _, p := range f.running {
		p.Stop()
	}
}

func (b *bench) startFronts(ctx context.Context, name string, n int) (*fronts, error) {
	f := &fronts{}
	for i := range n {
		g, err := b.cluster.StartGateway(ctx, fmt.Sprintf("%s-%d-of-%d", name, i+1, n), nil)
		if err != nil {
			return f, err
		}
		f.gateways, f.running = append(f.gateways, g), append(f.running, g.Process)
		port, err := suite.FreePort()
		if err != nil {
			return f, err
		}
		bootstrap, err := envoy.Bootstrap(envoy.Options{RunDir: g.RunDir, NodeID: g.Name, Port: port})
		if err != nil {
			return f, err
		}
		config, err := envoy.JSON(bootstrap)
		if err != nil {
			return f, err
		}
		file := filepath.Join(g.RunDir, "envoy.json")
		if err := os.WriteFile(file, config, 0o600); err != nil {
			return f, fmt.Errorf("write Envoy's configuration: %w", err)
		}
		admin := envoy.Admin{Socket: filepath.Join(g.RunDir, envoy.AdminSocketName)}
		p, err := b.Start(ctx, "envoy-"+g.Name, nil, admin.Ready, b.Envoy, envoy.Args(file, 1)...)
		if err != nil {
			return f, err
		}
		f.running = append([]*suite.Process{p}, f.running...) // Envoy stops before its gateway
		f.urls = append(f.urls, "http://127.0.0.1:"+strconv.Itoa(port)+"/")
	}
	return f, suite.Place(ctx, f.gateways)
}

// client keeps its connections: what is measured is no connect.
var client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 400, DisableCompression: true}}

// get asks for a sandbox and returns the status.
func (b *bench) get(ctx context.Context, url, id string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	req.Host = b.cluster.Host(id)
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = resp.Body.Read(make([]byte, 64)) // so that the connection can be used again
	return resp.StatusCode, nil
}

// must asks and wants the sandbox's answer.
func (b *bench) must(ctx context.Context, url, id string) error {
	status, err := b.get(ctx, url, id)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("a request for %s is answered with %d", id, status)
	}
	return err
}

// writes are the two of a first request, sent bare.
func (b *bench) writes(ctx context.Context, pod *corev1.Pod) error {
	c := claim(pod)
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: c.SandboxID, Finalizers: []string{v1alpha1.FinalizerSandbox}}}
	s.Spec.Namespace, s.Spec.Pool, s.Spec.FirstRequest = suite.Namespace, suite.Pool, true
	s.Spec.Binding = &v1alpha1.Binding{ClaimID: c.ClaimID, PodName: c.PodName, PodUID: string(c.PodUID)}
	if err := b.cluster.Client.Create(ctx, s); err != nil {
		return err
	}
	return b.patch(ctx, c)
}

// first measures first requests over 1 and over 3 gateways, then releases.
func (b *bench) first(ctx context.Context) error {
	for _, n := range []int{1, gateways} {
		if err := b.firstOver(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// barePool has the pods that the bare writes claim, so that no gateway does.
const barePool = "bare"

func (b *bench) firstOver(ctx context.Context, n int) error {
	f, err := b.startFronts(ctx, "claims", n)
	defer f.stop()
	if err != nil {
		return err
	}
	made := 0
	for _, burst := range append([]int{1}, b.Bursts...) {
		count, rounds := burst, max(b.Rounds, result.MinSamples)
		if burst == 1 {
			count, rounds = b.Claims, 1
		}
		for range rounds {
			if _, err := b.pods(ctx, suite.Pool, count); err != nil {
				return err
			}
			bares, err := b.pods(ctx, barePool, count)
			if err != nil {
				return err
			}
			from := made
			made += count
			ours := func(ctx context.Context, i int) error {
				return b.must(ctx, f.urls[i%n], fmt.Sprintf("first%d-%d", n, from+i))
			}
			bare := func(ctx context.Context, i int) error { return b.writes(ctx, bares[i]) }
			name := fmt.Sprintf("first-%d-gateways-%d", burst, n)
			if burst == 1 {
				err = b.oneByOne(ctx, name, count, ours, bare)
				b.budget(name)
			} else {
				// As many connections as requests, or a burst would measure connects.
				known := func(ctx context.Context, i int) error {
					return b.must(ctx, f.urls[i%n], fmt.Sprintf("first%d-0", n))
				}
				if _, err := together(ctx, count, known); err != nil {
					return fmt.Errorf("%s: connect: %w", name, err)
				}
				err = b.atOnce(ctx, name, count, 0.8, ours, bare)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if n < gateways {
		return nil
	}
	return b.release(ctx, f)
}

// release ends sandboxes that every gateway routes to.
func (b *bench) release(ctx context.Context, f *fronts) error {
	var gone, since []float64
	for i := range b.Claims {
		id := fmt.Sprintf("first%d-%d", len(f.urls), i)
		for _, url := range f.urls {
			if err := b.must(ctx, url, id); err != nil {
				return err
			}
		}
		asked := make([]time.Time, len(f.urls)) // when the last request went out that was still routed
		watching, stop := context.WithTimeout(ctx, 10*time.Second)
		ready := make(chan struct{}, len(f.urls))
		done := make(chan error, 1)
		go func() {
			_, err := together(watching, len(f.urls), func(ctx context.Context, g int) error {
				for first := true; ; first = false {
					at := time.Now()
					status, err := b.get(ctx, f.urls[g], id)
					if err != nil || status != http.StatusOK {
						return err
					}
					asked[g] = at
					if first {
						ready <- struct{}{}
					}
				}
			})
			done <- err
		}()
		for range f.urls {
			select {
			case <-ready:
			case <-watching.Done():
			}
		}
		sent := time.Now()
		err := ending.EndSandbox(ctx, b.cluster.Client, id, v1alpha1.EndReleased, "bench")
		written := time.Now()
		if watchErr := <-done; err == nil {
			err = watchErr
		}
		stop()
		if err != nil {
			return fmt.Errorf("release: %w", err)
		}
		last := sent
		for _, at := range asked {
			if at.After(last) {
				last = at
			}
		}
		millis := func(d time.Duration) float64 { return float64(max(d, 0).Microseconds()) / 1000 }
		gone, since = append(gone, millis(last.Sub(written))), append(since, millis(last.Sub(sent)))
	}
	b.Add("claims/release/sandlane/routed-after-end", "ms", "less", gone...).Note = "from the answer to the write; 0 if the last routed request was before it"
	b.Add("claims/release/sandlane/routed-since-sent", "ms", "less", since...).Note = "from when the write was sent"
	b.Add("claims/release/sandlane/p50", "ms", "less", result.Median(gone))
	b.Add("claims/release/sandlane/p99", "ms", "less", result.Quantile(gone, 0.99)).Budget = &result.Budget{Value: 50}
	b.Progress("release: p50 %.1f ms, p99 %.1f ms until none of %d gateways routes, %.1f and %.1f from before the write", result.Median(gone),
		result.Quantile(gone, 0.99), len(f.urls), result.Median(since), result.Quantile(since, 0.99))
	return nil
}
