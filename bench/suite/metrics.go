package suite

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
)

// Metric reads one of the gateway's own metrics. It returns the sum for each value of a
// label, or the sum of all under "" if no label is named.
func (g *Gateway) Metric(ctx context.Context, name, label string) (map[string]float64, error) {
	sums, err := scrape(ctx, g.Metrics, name, label)
	if err != nil {
		return nil, fmt.Errorf("read the metric %s of %s: %w", name, g.Name, err)
	}
	return sums, nil
}

func scrape(ctx context.Context, url, name, label string) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	line := regexp.MustCompile(`^` + name + `(\{.*\})? (\S+)$`)
	value := regexp.MustCompile(`[{,]` + label + `="([^"]*)"`)
	sums := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		m := line.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		n, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, err
		}
		key := ""
		if v := value.FindStringSubmatch(m[1]); label != "" && v != nil {
			key = v[1]
		}
		sums[key] += n
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(sums) == 0 {
		return nil, fmt.Errorf("%s does not have it", url)
	}
	return sums, nil
}

// Answers counts how the gateway answered requests, by outcome.
func (g *Gateway) Answers(ctx context.Context) (map[string]float64, error) {
	return g.Metric(ctx, "sandlane_extproc_requests_total", "outcome")
}
