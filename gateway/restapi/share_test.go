package restapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/ratelimit"
	"github.com/sandlane/sandlane/test/bubble"
)

// brokenMetrics has no metrics of any sandbox, and notes whose requests it gets.
type brokenMetrics struct {
	*fake
	asked []string
}

func (f *brokenMetrics) Metrics(ctx context.Context, _, _ string, _ bool) ([]Metric, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, KeyOf(ctx))
	return nil, errors.New("broken")
}

func idsFrom(first, n int) string {
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprintf("i%020d", first+i))
	}
	return strings.Join(ids, ",")
}

// Each ID of a batch counts against its key's limit, once; what cannot be had is
// not begun; another key has its own limit.
func TestBatchIsCounted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &brokenMetrics{fake: newFake()}
		s := newServer(t, f.fake, func(o *Options) { o.Sandboxes, o.KeyLimit = f, ratelimit.Limit{PerSecond: 1, Burst: 10} })
		for _, c := range []struct {
			key, ids string
			code     int
			left     string
		}{
			{keyA, idsFrom(0, 6), 200, "4"},
			{keyA, idsFrom(0, 1) + "," + idsFrom(0, 1), 200, "3"},
			{keyA, idsFrom(0, 6), 429, "2"}, // the request itself was counted
			{keyB, idsFrom(0, 6), 200, "4"},
		} {
			w := ask(t, s, "GET", "/sandboxes/metrics?sandbox_ids="+c.ids, c.key, "")
			if left := w.Header().Get("RateLimit-Remaining"); w.Code != c.code || left != c.left {
				t.Errorf("%s: %d with %s left, want %d with %s", c.ids, w.Code, left, c.code, c.left)
			}
		}
		if len(f.asked) != 6+1+6 {
			t.Errorf("%d sandboxes were asked", len(f.asked))
		}
		for _, caller := range f.asked {
			if caller != "a/a/aaaa" && caller != "b/b/bbbb" {
				t.Errorf("the request is %q's", caller)
			}
		}
	})
}

// A batch that cannot be answered, and requests over the limit, leave no line each.
func TestFloodOfLinesIsLimited(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := &brokenMetrics{fake: newFake()}
		s := newServer(t, f.fake, func(o *Options) {
			o.Sandboxes, o.Log, o.KeyLimit = f, slog.New(slog.NewTextHandler(&log, nil)), ratelimit.Limit{PerSecond: 1, Burst: 250}
		})
		lines := func() int {
			defer log.Reset()
			return strings.Count(log.String(), "\n")
		}
		for range 2 {
			ask(t, s, "GET", "/sandboxes/metrics?sandbox_ids="+idsFrom(0, 100), keyA, "")
		}
		if n := lines(); n != 1 {
			t.Errorf("200 sandboxes without metrics left %d lines", n)
		}
		for range 200 {
			ask(t, s, "DELETE", "/sandboxes/"+idA, keyA, "")
		}
		if n := lines(); n != 50 {
			t.Errorf("200 requests, of which 50 are within the limit, left %d lines", n)
		}
		time.Sleep(time.Second)
		ask(t, s, "GET", "/sandboxes/metrics?sandbox_ids="+idsFrom(0, 1), keyA, "")
		if n := lines(); n != 1 {
			t.Errorf("a second later a sandbox without metrics left %d lines", n)
		}
	})
}
