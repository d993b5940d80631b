package claims

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/result"
)

// refusals is how many refused requests in a row show that a gateway does not route to the
// sandbox any more.
const refusals = 3

// release ends sandboxes that every gateway routes to.
func (b *bench) release(ctx context.Context, f *fronts, id func(int) string) error {
	var afterAnswer, sinceSent []float64
	for i := range b.Claims {
		sent, written, last, err := b.releaseOne(ctx, f, id(i))
		if err != nil {
			return fmt.Errorf("release %s: %w", id(i), err)
		}
		millis := func(d time.Duration) float64 { return float64(max(d, 0).Microseconds()) / 1000 }
		afterAnswer, sinceSent = append(afterAnswer, millis(last.Sub(written))), append(sinceSent, millis(last.Sub(sent)))
	}
	const row = "claims/release/sandlane/"
	b.Add(row+"routed-since-sent", "ms", "less", sinceSent...).Note = "from when the write was sent to the last answer of the sandbox over any gateway"
	b.Add(row+"routed-after-answer", "ms", "less", afterAnswer...).Note = "from the answer to the write; 0 if the sandbox's last answer was before it"
	b.Add(row+"p50", "ms", "less", result.Median(sinceSent)).Note = "since sent"
	b.Add(row+"p99", "ms", "less", result.Quantile(sinceSent, 0.99)).Note = "since sent"
	b.Progress("release: p50 %.1f ms, p99 %.1f ms from the write's sending until none of %d gateways routes", result.Median(sinceSent), result.Quantile(sinceSent, 0.99), len(f.urls))
	return nil
}

// releaseOne keeps asking over every gateway while the sandbox is ended. It returns
// when the end was sent and answered, and when the sandbox gave its last answer.
func (b *bench) releaseOne(ctx context.Context, f *fronts, id string) (sent, written, last time.Time, err error) {
	for _, url := range f.urls {
		if err := b.must(ctx, url, id); err != nil {
			return sent, written, last, err
		}
	}
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	answered := make([]time.Time, len(f.urls)) // when the sandbox last answered, by gateway
	asking, done := make(chan struct{}, len(f.urls)), make(chan error, 1)
	go func() {
		_, err := together(ctx, len(f.urls), func(ctx context.Context, g int) error {
			return b.askUntilGone(ctx, f.urls[g], id, &answered[g], asking)
		})
		done <- err
	}()
	for range f.urls {
		select {
		case <-asking:
		case err := <-done:
			return sent, written, last, fmt.Errorf("before its end: %w", err)
		}
	}
	sent = time.Now()
	err = writes.EndSandbox(ctx, b.cluster.Client, id, v1alpha1.EndReleased, "bench")
	written = time.Now()
	if err != nil {
		stop()
	}
	if watchErr := <-done; err == nil {
		err = watchErr
	}
	return sent, written, slices.MaxFunc(append(answered, sent), time.Time.Compare), err
}

// askUntilGone sends requests to a sandbox until enough in a row were refused because there
// is no such sandbox, and notes when the sandbox itself last answered. Any other answer is
// an error, and so is an answer of the sandbox after a refusal.
func (b *bench) askUntilGone(ctx context.Context, url, id string, answered *time.Time, asking chan<- struct{}) error {
	for first, gone := true, 0; gone < refusals; first = false {
		code, err := b.get(ctx, url, id)
		switch {
		case err != nil:
			return err
		case code == http.StatusOK && gone > 0:
			return fmt.Errorf("a gateway routes to %s again", id)
		case code == http.StatusOK:
			*answered = time.Now()
		case code == http.StatusBadGateway && !first: // there is no such sandbox
			gone++
		default:
			return fmt.Errorf("a request for %s is answered with %d", id, code)
		}
		if first {
			asking <- struct{}{}
		}
	}
	return nil
}
