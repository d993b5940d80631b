package daemon

import "testing"

// Gateway and controller take the same words for serving no metrics.
func TestMetricsAddress(t *testing.T) {
	for _, off := range []string{"", "0"} {
		for address, want := range map[string]string{"": off, "0": off, ":0": ":0", "127.0.0.1:9090": "127.0.0.1:9090"} {
			if got := MetricsAddress(address, off); got != want {
				t.Errorf("%q where nowhere is %q: %q", address, off, got)
			}
		}
	}
}
