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

// delayWatches delays all events that a gateway sees, until the end of the test. It returns
// once the delay has taken effect.
func delayWatches(t *testing.T, l *load, late, other stack.Gateway, d time.Duration) {
	t.Helper()
	arm(t, late.Name, "gateway/watch", "delay "+d.String())
	const made = 4
	before := [2]int{knownSandboxes(t, late), knownSandboxes(t, other)}
	for i := range made {
		id := fmt.Sprintf("%s-unseen-%d", strings.ReplaceAll(l.pool, "/", "-"), i)
		if a := l.ask(newHTTP(t), other, id); a.Echo == nil {
			t.Fatalf("%s: %v", id, a)
		}
	}
	l.stack.Eventually(t, 10*time.Second, other.Name+" to know what was made", func() (bool, string) {
		n := knownSandboxes(t, other) - before[1]
		return n == made, fmt.Sprint(n)
	})
	if n := knownSandboxes(t, late) - before[0]; n == made {
		t.Fatalf("%s knows all %d new sandboxes already: its watches are not late", late.Name, n)
	}
	l.stack.Eventually(t, d+10*time.Second, late.Name+" to know what was made", func() (bool, string) {
		n := knownSandboxes(t, late) - before[0]
		return n == made, fmt.Sprint(n)
	})
}

// knownSandboxes returns how many sandboxes a gateway's index has, by its metrics.
func knownSandboxes(t *testing.T, g stack.Gateway) int {
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
		if value, ok := strings.CutPrefix(line, "sandlane_index_sandboxes "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
	}
	t.Fatalf("%s shows no metric of its index", g.Name)
	return 0
}
