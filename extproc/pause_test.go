package extproc

import (
	"net/http"
	"testing"
)

// A paused sandbox is not found, but only by a live read: the index may be behind a
// resume by another gateway. Nothing is activated.
func TestPausedIsNotFound(t *testing.T) {
	f := newFixture(t)
	paused := Resolution{Availability: IDPaused, Namespace: "default", Pool: "echo"}
	f.resolver.setIndex("hello", paused)
	f.resolver.live["hello"] = paused
	a := f.ask(t, host("hello")...)
	if a.status != http.StatusBadGateway || a.body.Message != "The sandbox was not found" || f.resolver.reads != 1 || len(f.act.calls) > 0 {
		t.Errorf("answer %+v after %d live reads and %d activations", a, f.resolver.reads, len(f.act.calls))
	}
	f.resolver.live["hello"] = running(testRoute("hello"))
	if a := f.ask(t, host("hello")...); a.destination == "" {
		t.Errorf("answer %+v for one that was resumed", a)
	}
}
