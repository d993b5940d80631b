package proxy

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// The chart's alerts and its dashboard name no metric that an egress process does not have.
func TestChartNamesMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry, func() bool { return true })
	for _, of := range []*prometheus.CounterVec{m.connections, m.questions, m.requests, m.bytes} {
		of.WithLabelValues("x").Inc()
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, f := range families {
		known[f.GetName()] = true
	}
	named := 0
	for _, file := range []string{"rules.yaml", "dashboard.json"} {
		text, err := os.ReadFile(filepath.Join("../../charts/sandlane/files", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`sandlane_egress_[a-z_]+`).FindAll(text, -1) {
			if named++; !known[string(name)] {
				t.Errorf("%s names %s, which there is not", file, name)
			}
		}
	}
	if named < 6 {
		t.Errorf("only %d names: the pattern has rotted", named)
	}
}
