package reconcilers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/kubetest"
)

// series are a registry's values by name and labels, of histograms their counts.
func series(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			labels := []string{}
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			slices.Sort(labels)
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			if family.GetType() == dto.MetricType_HISTOGRAM {
				value = float64(m.GetHistogram().GetSampleCount())
			}
			out[strings.TrimPrefix(family.GetName(), "sandlane_")+"{"+strings.Join(labels, ",")+"}"] = value
		}
	}
	return out
}

// What is counted of a pool's pods and of an end, and that nothing of a pool is left
// when it is gone.
func TestMetricsOfAPool(t *testing.T) {
	reg := prometheus.NewRegistry()
	w := newWorld(t, func(w *world) { w.options.Registerer = reg })
	pool := w.pool("p", 2, 5)
	w.await("p", v1alpha1.PodIdle, 2)
	of := func(metric string, more ...string) string {
		labels := append([]string{"namespace=" + w.ns, "pool=p"}, more...)
		slices.Sort(labels)
		return metric + "{" + strings.Join(labels, ",") + "}"
	}
	awaits := func(what string, want map[string]float64) {
		t.Helper()
		kubetest.Eventually(t, what, func() error {
			got := series(t, reg)
			for name, value := range want {
				if now, ok := got[name]; !ok || now != value {
					return fmt.Errorf("%s is %v (%v), want %v", name, now, ok, value)
				}
			}
			return nil
		})
	}
	awaits("the stock", map[string]float64{
		of("sandboxpool_pods", "phase=idle"): 2, of("sandboxpool_pods", "phase=warming"): 0, of("sandboxpool_available_pods"): 2,
		of("sandboxpool_wanted_pods"): 2, of("sandboxpool_max_pods"): 5,
		of("sandboxpool_pod_creates_total", "outcome=created"): 2, of("sandboxpool_pod_creates_total", "outcome=failed"): 0,
		of("sandboxpool_pod_creates_total", "outcome=quota"): 0, of("sandboxpool_at_bound"): 0,
		of("sandboxpool_pod_idle_seconds"): 2, of("sandbox_ended_total", "reason=Released"): 0,
	})
	s, _ := w.running("p")
	awaits("a claim", map[string]float64{of("sandboxpool_pods", "phase=running"): 1, of("sandboxpool_pods", "phase=idle"): 2})
	if err := writes.EndSandbox(t.Context(), w.c, s.Name, v1alpha1.EndReleased, "the test is over"); err != nil {
		t.Fatal(err)
	}
	w.awaitSandbox(s, v1alpha1.SandboxEnded)
	awaits("the end", map[string]float64{
		of("sandbox_ended_total", "reason=Released"): 1, of("sandbox_ended_total", "reason=Failed"): 0,
		"sandbox_lifetime_seconds{reason=Released}": 1, of("sandboxpool_pods", "phase=running"): 0,
	})
	if err := w.c.Delete(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "nothing of the pool to be left", func() error {
		for name := range series(t, reg) {
			if strings.Contains(name, "pool=p") {
				return fmt.Errorf("%s is left", name)
			}
		}
		return nil
	})
}
