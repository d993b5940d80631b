package daemon

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// BuildInfo is a metric that is always 1 and says in its labels what runs.
func BuildInfo(version string) prometheus.Collector {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "sandlane", Name: "build_info", Help: "1; the labels say which version of Sandlane this process is.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	info.Set(1)
	return info
}
