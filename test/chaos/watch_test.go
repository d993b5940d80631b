package chaos

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/stack"
)

// delayWatches has a gateway see everything so much later, until the end of the
// test. It returns when that has been seen to work.
func delayWatches(t *testing.T, l *load, late, other stack.Gateway, d time.Duration) {
	t.Helper()
	arm(t, late.Name, "gateway/watch", "delay "+d.String())
	// Sandboxes that the record has seen, and the gateway's index has not: it
	// must read each live.
	const asked = 4
	before := liveReads(t, late)
	for i := range asked {
		id := fmt.Sprintf("%s-unseen-%d", strings.ReplaceAll(l.pool, "/", "-"), i)
		if a := l.ask(newHTTP(t), other, id); a.Echo == nil {
			t.Fatalf("%s: %v", id, a)
		}
		l.stack.Eventually(t, 10*time.Second, "the claim in the record", func() (bool, string) { return l.record.Pods(id) > 0, "nothing" })
		if a := l.ask(newHTTP(t), late, id); a.Echo == nil {
			t.Fatalf("%s through %s: %v", id, late.Name, a)
		}
	}
	if read := liveReads(t, late) - before; read < asked {
		t.Fatalf("%s read %d of %d sandboxes live: its watches are not late", late.Name, read, asked)
	}
}

// liveReads is how many running sandboxes a gateway has found by a live read.
func liveReads(t *testing.T, g stack.Gateway) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.MetricsURL, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, `sandlane_index_live_reads_total{outcome="running"} `); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
	}
	return 0 // none yet
}
