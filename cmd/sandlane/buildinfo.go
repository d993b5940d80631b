package main

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// buildInfo is a metric that is always 1 and says in its labels what runs.
func buildInfo() prometheus.Collector {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "sandlane", Name: "build_info", Help: "1; the labels say which version of Sandlane this process is.",
		ConstLabels: prometheus.Labels{"version": ownVersion(), "goversion": runtime.Version()},
	})
	info.Set(1)
	return info
}
