package stack

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Metric reads a metric of a gateway: the sum of its lines that have all these labels,
// such as `outcome="hit"`. It is not found if there is no such line.
func (g Gateway) Metric(ctx context.Context, name string, labels ...string) (sum float64, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.MetricsURL, nil)
	if err != nil {
		return 0, false, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, false, fmt.Errorf("read the metrics of %s: %w", g.Name, err)
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		rest, is := strings.CutPrefix(lines.Text(), name)
		if !is || rest == "" || rest[0] != ' ' && rest[0] != '{' || !hasAll(rest, labels) {
			continue
		}
		value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return 0, false, fmt.Errorf("read the metric %s of %s: %w", name, g.Name, err)
		}
		sum, found = sum+value, true
	}
	return sum, found, lines.Err()
}

func hasAll(text string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

// hasFastPath reports whether every gateway has a route table for its Envoy.
func (s *Stack) hasFastPath(ctx context.Context) (bool, error) {
	for _, g := range s.Up.Gateways {
		if _, found, err := g.Metric(ctx, "sandlane_fastpath_trusted"); err != nil || !found {
			return false, err
		}
	}
	return true, nil
}

// FastPathShare is how many of the stack's hits were answered inside Envoy, and how
// many there were.
func (s *Stack) FastPathShare(ctx context.Context) (inEnvoy, all float64, err error) {
	for _, g := range s.Up.Gateways {
		n, _, err := g.Metric(ctx, "sandlane_fastpath_requests_total", `result="hit"`)
		if err != nil {
			return 0, 0, err
		}
		of, _, err := g.Metric(ctx, "sandlane_extproc_requests_total", `outcome="hit"`) // those in Envoy are counted there too
		if err != nil {
			return 0, 0, err
		}
		inEnvoy, all = inEnvoy+n, all+of
	}
	return inEnvoy, all, nil
}
