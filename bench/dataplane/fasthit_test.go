package dataplane

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/test/result"
)

// A gateway counts Envoy's hits at its heartbeats. The next one may come after the case, on
// a busy machine long after: the share is that of what was counted then.
func TestHitsAreCountedAfterTheCase(t *testing.T) {
	var asked atomic.Int64
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		hits := 7
		if asked.Add(1) > 3 { // the first answer is the one before the case
			hits = 107
		}
		fmt.Fprintf(w, "sandlane_fastpath_requests_total{result=\"hit\"} %d\n", hits)
	}))
	defer gateway.Close()
	w := &fastWorld{
		world:       &world{Env: &suite.Env{Result: &result.Result{}}},
		fastGateway: &suite.Gateway{Metrics: gateway.URL},
	}
	if err := w.counted(t.Context(), "x", 99, 100, func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
	if row := w.Row("fastpath/x/sandlane-fast/share"); row == nil || len(row.Samples) != 1 || row.Samples[0] != 100 {
		t.Errorf("the share is %+v, want 100 %%", row)
	}
}
