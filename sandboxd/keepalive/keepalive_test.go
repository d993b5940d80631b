package keepalive

import (
	"net/http"
	"testing"
	"time"
)

func TestInterval(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"": Default, "1": time.Second, "50": 50 * time.Second, "86400": 24 * time.Hour,
		"0": Default, "-1": Default, "86401": Default, "1.5": Default, "soon": Default,
	} {
		header := http.Header{}
		header.Set("Keepalive-Ping-Interval", value)
		if got := Interval(header); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}
