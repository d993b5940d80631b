package fastpath

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/test/cmodule"
)

// A request that Envoy kept waiting between its two looks at the table is answered from
// what the table has then, or not at all.
func TestLateHitLooksAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(*world, *routecache.Route)
		want      string // the destination
	}{
		"nothing happens":     {func(*world, *routecache.Route) {}, "10.0.0.5:80"},
		"the route is gone":   {func(w *world, r *routecache.Route) { w.cache.Drop(r) }, ""},
		"trust is gone":       {func(w *world, _ *routecache.Route) { w.table.Distrust(true) }, ""},
		"it lives elsewhere":  {func(w *world, _ *routecache.Route) { w.cache.DropAll(); w.put(t, route(generatedID, "10.0.0.9")) }, "10.0.0.9:80"},
		"the route is closed": {func(w *world, _ *routecache.Route) { w.cache.Retract(generatedID) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 100)
			envoy := w.envoy(t, "late")
			r := w.put(t, route(generatedID, "10.0.0.5"))
			envoy.Send(t, cmodule.AppendRequest(nil, request(generatedID, "80")...))
			envoy.Byte(t)
			tc.meanwhile(w, r)
			if err := w.table.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			envoy.Send(t, []byte{'g'})
			if got := envoy.Answer(t); got["destination"] != tc.want {
				t.Errorf("answered %q, want %q", got["destination"], tc.want)
			}
			gone := map[bool]float64{true: 1, false: 0}[tc.want == ""]
			w.table.countResults()
			if got := testutil.ToFloat64(w.table.metrics.requests.WithLabelValues(resultGone)); got != gone {
				t.Errorf("%v counted as gone, want %v", got, gone)
			}
			w.table.Fold()
			if used := r.Use.Load() != 0; used != (tc.want == "10.0.0.5:80") {
				t.Errorf("use of the first route is noted: %v", used)
			}
		})
	}
}
