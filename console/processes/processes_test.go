package processes_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sandlane/sandlane/console/processes"
)

// What gateways say is read from their metrics and their Envoy's; one that does not answer
// is there with why, and other processes are not asked.
func TestAsk(t *testing.T) {
	gateway := func(name, own, envoy string) processes.Process {
		return processes.Process{Name: name, Gateway: true, ReadMetrics: func(_ context.Context, path string) ([]byte, error) {
			switch {
			case own == "":
				return nil, errors.New("away")
			case path == "/metrics":
				return []byte(own), nil
			case envoy == "":
				return nil, errors.New("Envoy is away")
			}
			return []byte(envoy), nil
		}}
	}
	all := []processes.Process{
		gateway("on", "# HELP x y\nsandlane_controlplane_lease_held 1\nsandlane_fastpath_trusted 1\nsandlane_routecache_entries 7\n"+
			"sandlane_limits_waiting_requests 2\nsandlane_routecache_refused_addresses 3\nsandlane_snapshot_store_full{of=\"another\"} 0\n"+
			"sandlane_snapshot_store_full 1\n# TYPE sandlane_routecache_fence_seconds histogram\nsandlane_routecache_fence_seconds_bucket{le=\"1\"} 4\n"+
			"sandlane_routecache_fence_seconds_bucket{le=\"+Inf\"} 4\nsandlane_routecache_fence_seconds_sum 0.02\nsandlane_routecache_fence_seconds_count 4\n",
			"envoy_server_days_until_first_cert_expiring{} 5\n"),
		gateway("waiting", "sandlane_controlplane_lease_held 0\nsandlane_fastpath_trusted 0\n", "envoy_server_days_until_first_cert_expiring{} 4294967295\n"),
		gateway("off", "sandlane_controlplane_lease_held 1\n", ""),
		gateway("away", "", ""),
		gateway("stranger", "x 1\n", ""),
		{Name: "controller", ReadMetrics: func(context.Context, string) ([]byte, error) { panic("the controller is no gateway") }},
	}
	got := processes.Ask(t.Context(), all)
	for name, want := range map[string]processes.Metrics{
		"on":      {Held: true, FastPath: processes.FastOn, Routes: 7, Waiting: 2, FencesBehind: 3, FenceMean: 5 * time.Millisecond, StoreFull: true, CertificateDays: 5},
		"waiting": {FastPath: processes.FastWaiting, CertificateDays: -1},
		"off":     {Held: true, FastPath: processes.FastOff, CertificateDays: -1},
	} {
		if got[name] != want {
			t.Errorf("%s: %+v, want %+v", name, got[name], want)
		}
	}
	if len(got) != 5 || got["away"].Err == nil || got["stranger"].Err == nil {
		t.Errorf("asked: %+v", got)
	}
}
