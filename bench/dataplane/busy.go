package dataplane

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/bench/suite"
)

const (
	checkTime = 3 * time.Second // in which each parked request checks its sandbox once
	parked    = 500
	perSecond = 200 // sandboxes made, and as many deleted
)

// busy measures hits while other requests wait for pods that do not come, and while
// sandboxes are made and deleted. The same goes on during the floor's rounds, including the
// gateway's work for it. So the ratio shows what a hit costs meanwhile; the CPU rows, compared
// with those of the case hit, show what the other work costs.
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
	if err := w.gateway.AwaitParked(ctx, parked); err != nil {
		return err
	}
	// A second after it began to wait each parked request checks whether another gateway
	// gave its sandbox a pod. Here all do that at once, which does not happen in practice.
	if _, err := w.closed(ctx, w.ours, w.single(connections), checkTime); err != nil {
		return err
	}
	background.Go(func() { c.run(ctx) })
	start := time.Now()
	if err := w.both(ctx, "busy", w.Rounds, func(ctx context.Context, s *side) (measured, error) {
		return w.closed(ctx, s, w.single(connections), w.RoundTime)
	}); err != nil {
		return err
	}
	w.Add("dataplane/busy/both/sandboxes", "made and deleted/s", "", float64(c.cycles.Load())/time.Since(start).Seconds())
	if err := c.err.Load(); err != nil {
		return *err
	}
	// A request that has timed out is sent again, so soon all must wait again.
	if err := w.gateway.AwaitParked(ctx, parked); err != nil {
		return fmt.Errorf("after the rounds: %w", err)
	}
	still, err := w.gateway.Parked(ctx)
	w.Add("dataplane/busy/sandlane/parked", "requests at the end", "", float64(still))
	return err
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
		_, _ = conn.Read(make([]byte, 1)) // an answer means that the request has timed out: send it again
		stop()
		_ = conn.Close()
	}
}

// churn makes and deletes sandboxes whose pods were made before.
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

// run makes and deletes perSecond sandboxes a second, or fewer if the API server cannot keep
// up; the result says how many.
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
