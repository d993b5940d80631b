package dataplane

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/bench/suite"
)

const (
	parked    = 500
	perSecond = 200 // sandboxes made, and as many deleted
)

// busy measures hits while requests wait for pods that do not come, and while
// sandboxes come and go. The floor's rounds have the same beside them.
func (w *world) busy(ctx context.Context) error {
	if err := w.startSides(ctx, 1, 1); err != nil {
		return err
	}
	if err := w.warm(ctx, w.single(connections)); err != nil {
		return err
	}
	c, err := w.prepareChurn(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	for i := range parked {
		background.Go(func() { w.park(ctx, i) })
	}
	if err := w.awaitParked(ctx); err != nil {
		return err
	}
	background.Go(func() { c.run(ctx) })
	start := time.Now()
	if err := w.both(ctx, "busy", func(ctx context.Context, s *side) (measured, error) {
		return w.closed(ctx, s, w.single(connections), w.RoundTime)
	}); err != nil {
		return err
	}
	w.Add("dataplane/busy/both/sandboxes", "made and deleted/s", "", float64(c.cycles.Load())/time.Since(start).Seconds())
	if err := c.err.Load(); err != nil {
		return *err
	}
	still, err := w.parkedNow(ctx)
	if err != nil {
		return err
	}
	w.Row("dataplane/busy/sandlane/rps").Note = fmt.Sprintf("%d requests parked at the end", still)
	return nil
}

// park sends first requests that wait for a pod, until ctx ends.
func (w *world) park(ctx context.Context, i int) {
	for ctx.Err() == nil {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", w.ours.address)
		if err != nil {
			continue
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		_, _ = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", w.cluster.Host("parked"+strconv.Itoa(i)))
		_, _ = conn.Read(make([]byte, 1)) // an answer means that it has waited long enough: again
		stop()
		_ = conn.Close()
	}
}

func (w *world) awaitParked(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		n, err := w.parkedNow(ctx)
		if err != nil {
			return err
		}
		if n >= parked {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d of %d requests are parked: %w", n, parked, ctx.Err())
		}
	}
}

// churn makes and deletes sandboxes whose pods stand ready.
type churn struct {
	w      *world
	pods   []v1alpha1.Binding
	cycles atomic.Int64
	err    atomic.Pointer[error]
}

func churnID(i int) string { return "churn" + strconv.Itoa(i) }

func (w *world) prepareChurn(ctx context.Context) (*churn, error) {
	c := &churn{w: w, pods: make([]v1alpha1.Binding, perSecond)}
	err := suite.Each(ctx, len(c.pods), func(ctx context.Context, i int) (err error) {
		c.pods[i], err = w.cluster.MakeClaimed(ctx, churnID(i))
		return err
	})
	return c, err
}

// run makes a sandbox and deletes it again, so many times a second; what the API
// server cannot keep up with is left out, and the result says what it did.
func (c *churn) run(ctx context.Context) {
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	slots := make(chan struct{}, 32) // writes under way
	var writing sync.WaitGroup
	defer writing.Wait()
	for i := 0; ; i = (i + 1) % len(c.pods) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		slots <- struct{}{}
		writing.Go(func() {
			defer func() { <-slots }()
			if err := c.cycle(ctx, i); err != nil && ctx.Err() == nil {
				c.err.Store(&err)
			}
		})
	}
}

func (c *churn) cycle(ctx context.Context, i int) error {
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: churnID(i)}}
	s.Spec.Namespace, s.Spec.Pool, s.Spec.Binding = suite.Namespace, suite.Pool, &c.pods[i]
	if err := c.w.cluster.Client.Create(ctx, s); err != nil {
		return fmt.Errorf("make a sandbox: %w", err)
	}
	if err := c.w.cluster.Client.Delete(ctx, s); err != nil {
		return fmt.Errorf("delete a sandbox: %w", err)
	}
	c.cycles.Add(1)
	return nil
}

var (
	outcomeLine = regexp.MustCompile(`^sandlane_extproc_requests_total\{outcome="(\w+)",reason="\w*"\} (\S+)$`)
	parkedLine  = regexp.MustCompile(`^sandlane_extproc_parked(\s)(\S+)$`)
)

// outcomes are the gateway's own counts of how it answered.
func (w *world) outcomes(ctx context.Context) (map[string]float64, error) {
	return w.metrics(ctx, outcomeLine)
}

func (w *world) parkedNow(ctx context.Context) (int, error) {
	all, err := w.metrics(ctx, parkedLine)
	return int(all[" "]), err
}

// metrics reads lines of the gateway's metrics: label and value.
func (w *world) metrics(ctx context.Context, line *regexp.Regexp) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.gateway.Metrics, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read the gateway's metrics: %w", err)
	}
	defer resp.Body.Close()
	found := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		m := line.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		if found[m[1]], err = strconv.ParseFloat(m[2], 64); err != nil {
			return nil, fmt.Errorf("read the gateway's metrics: %w", err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the gateway's metrics: %w", err)
	}
	if len(found) == 0 {
		return nil, errors.New("the gateway's metrics lack what was looked for")
	}
	return found, nil
}
