package processes

import (
	"bytes"
	"context"
	"errors"
	"math"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Process is one gateway or controller, or another process of an installation.
type Process struct {
	// Name is that of the gateway and its Lease, or the pod's, or that of a process of `up`.
	Name string
	// Gateway is set for gateways; their metrics are read.
	Gateway bool
	// ReadMetrics returns metrics in Prometheus' text format: its own at /metrics, and those
	// of a gateway's Envoy at /metrics/envoy. nil if it has none.
	ReadMetrics func(ctx context.Context, path string) ([]byte, error)
	// ReadLog returns about the last so many lines of the log.
	ReadLog func(ctx context.Context, lines int) ([]byte, error)
}

// Finder lists the processes of an installation.
type Finder func(ctx context.Context) ([]Process, error)

// patience is how long one process may take to answer.
const patience = 5 * time.Second

// FastPath says whether Envoy answers hits by itself.
type FastPath string

// The states of a fast path.
const (
	FastOff     FastPath = "off"
	FastOn      FastPath = "on"
	FastWaiting FastPath = "waiting" // for a lease, or for an Envoy that was tested
	FastUnknown FastPath = "?"
)

// Metrics is what a gateway says of itself.
type Metrics struct {
	// Err says why nothing is known; the rest is zero then.
	Err error
	// Held: the gateway has its lease, by its own clock.
	Held bool
	FastPath
	// Routes are those in its cache, Waiting the requests that wait for a pod.
	Routes, Waiting int
	// FencesBehind counts addresses whose fence the gateway's watch has not passed yet.
	FencesBehind int
	// FenceMean is the mean time that a fence took; 0 before the first.
	FenceMean time.Duration
	// StoreFull: the last archive of a snapshot or pause found no room.
	StoreFull bool
	// CertificateDays is in how many days Envoy's first certificate ends; -1 if it has none,
	// or does not say.
	CertificateDays int
}

// Ask reads the metrics of all gateways, at once, by their names.
func Ask(ctx context.Context, all []Process) map[string]Metrics {
	type answer struct {
		name string
		m    Metrics
	}
	answers := make(chan answer, len(all))
	asked := 0
	for _, p := range all {
		if !p.Gateway || p.ReadMetrics == nil {
			continue
		}
		asked++
		go func() {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			text, err := p.ReadMetrics(ctx, "/metrics")
			if err != nil {
				answers <- answer{p.Name, unknown(err)}
				return
			}
			envoy, err := p.ReadMetrics(ctx, "/metrics/envoy")
			if err != nil {
				envoy = nil // an Envoy that was not asked has no certificate that is known
			}
			answers <- answer{p.Name, Parse(text, envoy)}
		}()
	}
	found := make(map[string]Metrics, asked)
	for range asked {
		a := <-answers
		found[a.name] = a.m
	}
	return found
}

// Parse reads a gateway's metrics and, if they could be read, its Envoy's.
func Parse(gateway, envoy []byte) Metrics {
	own := families(gateway)
	held := own["sandlane_controlplane_lease_held"]
	if held == nil {
		return unknown(errors.New("its metrics are not a gateway's"))
	}
	m := Metrics{Held: value(held) == 1, FastPath: FastOff, CertificateDays: -1}
	if trusted := own["sandlane_fastpath_trusted"]; trusted != nil {
		m.FastPath = FastWaiting
		if value(trusted) == 1 {
			m.FastPath = FastOn
		}
	}
	m.Routes = int(value(own["sandlane_routecache_entries"]))
	m.Waiting = int(value(own["sandlane_limits_waiting_requests"]))
	m.StoreFull = value(own["sandlane_snapshot_store_full"]) == 1
	m.FencesBehind = int(value(own["sandlane_routecache_refused_addresses"]))
	if fences := plain(own["sandlane_routecache_fence_seconds"]).GetHistogram(); fences.GetSampleCount() > 0 {
		m.FenceMean = time.Duration(fences.GetSampleSum() / float64(fences.GetSampleCount()) * float64(time.Second))
	}
	// Envoy says the largest 32-bit number where it has no certificate.
	if days := families(envoy)["envoy_server_days_until_first_cert_expiring"]; days != nil && value(days) < math.MaxInt32 {
		m.CertificateDays = int(value(days))
	}
	return m
}

func unknown(err error) Metrics {
	return Metrics{Err: err, FastPath: FastUnknown, CertificateDays: -1}
}

// families are the metrics of a text in Prometheus' format, by name: those before the first line
// that breaks the format.
func families(text []byte) map[string]*dto.MetricFamily {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, _ := parser.TextToMetricFamilies(bytes.NewReader(text))
	return all
}

// plain returns the metric of a family that has no labels; nil if there is none.
func plain(f *dto.MetricFamily) *dto.Metric {
	for _, m := range f.GetMetric() {
		if len(m.GetLabel()) == 0 {
			return m
		}
	}
	return nil
}

// value is that of a gauge, a counter or a metric without a type; the others are 0.
func value(f *dto.MetricFamily) float64 {
	m := plain(f)
	return m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
}
