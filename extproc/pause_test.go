package extproc

import (
	"context"
	"net/http"
	"testing"

	"github.com/sandlane/sandlane/routing"
)

// A paused sandbox is not found, but only by a live read: the index may be behind a
// resume by another gateway. Nothing is activated.
func TestPausedIsNotFound(t *testing.T) {
	f := newFixture(t)
	paused := routing.Answer{State: routing.Paused, Namespace: "default", Pool: "echo"}
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

// A request resumes a paused sandbox that lets it, once it was authorised: by the traffic
// token on private ports, by sandboxd's own on its port. Nothing is asked for before.
func TestWake(t *testing.T) {
	for _, c := range []struct {
		name    string
		res     routing.Answer
		port    string
		headers []string
		status  int // 0: resumed and answered
	}{
		{"open port", routing.Answer{}, "8000", nil, 0},
		{"does not resume", routing.Answer{Private: true}, "8000", []string{"e2b-traffic-access-token", "token-iaaaaaaaaaaaaaaaaaaaa-uid"}, http.StatusBadGateway},
		{"private port", routing.Answer{Private: true}, "8000", nil, http.StatusForbidden},
		{"private port, wrong token", routing.Answer{Private: true}, "8000", []string{"e2b-traffic-access-token", "x"}, http.StatusForbidden},
		{"private port, its token", routing.Answer{Private: true}, "8000", []string{"e2b-traffic-access-token", "token-iaaaaaaaaaaaaaaaaaaaa-uid"}, 0},
		{"sandboxd", routing.Answer{Guarded: true}, "49983", nil, http.StatusForbidden},
		{"sandboxd, wrong token", routing.Answer{Guarded: true}, "49983", []string{"x-access-token", "token-iaaaaaaaaaaaaaaaaaaaa-uid"}, http.StatusForbidden},
		{"sandboxd, its token", routing.Answer{Guarded: true}, "49983", []string{"x-access-token", "envd-iaaaaaaaaaaaaaaaaaaaa-uid"}, 0},
		{"sandboxd, unsecured", routing.Answer{}, "49983", nil, 0},
	} {
		f := newFixture(t)
		id := "iaaaaaaaaaaaaaaaaaaaa"
		c.res.State, c.res.Namespace, c.res.Pool, c.res.UID = routing.Paused, "default", "echo", "uid"
		c.res.Resumes = c.name != "does not resume"
		f.resolver.setIndex(id, c.res)
		f.resolver.live[id] = c.res
		f.act.do = func(context.Context, routing.Request) error {
			f.resolver.setIndex(id, running(testRoute(id)))
			return nil
		}
		a := f.ask(t, append([]string{":authority", c.port + "-" + id + ".localhost", ":path", "/"}, c.headers...)...)
		if c.status == 0 && (a.destination == "" || len(f.act.calls) != 1 || f.act.calls[0].Resume.UID != "uid") {
			t.Errorf("%s: answer %+v after %+v", c.name, a, f.act.calls)
		}
		if c.status != 0 && (a.status != c.status || len(f.act.calls) != 0) {
			t.Errorf("%s: answer %+v after %+v", c.name, a, f.act.calls)
		}
		// The index is enough to resume it, which reads it for all requests at once; only a
		// refusal is checked, for the index can be behind.
		if reads := f.resolver.reads; (reads > 0) != (c.status != 0) {
			t.Errorf("%s: %d live reads", c.name, reads)
		}
	}
}

// A request that may not resume what the index shows as paused is let through if the
// sandbox was resumed since.
func TestIndexBehindAResume(t *testing.T) {
	f := newFixture(t)
	id := "iaaaaaaaaaaaaaaaaaaaa"
	f.resolver.setIndex(id, routing.Answer{State: routing.Paused, Namespace: "default", Pool: "echo", UID: "uid", Guarded: true, Resumes: true})
	f.resolver.live[id] = running(testRoute(id))
	if a := f.ask(t, ":authority", "49983-"+id+".localhost", ":path", "/"); a.destination == "" || len(f.act.calls) > 0 {
		t.Errorf("answer %+v after %+v", a, f.act.calls)
	}
}

// A request resumes a sandbox that is paused again at once three times, and no more.
func TestPausedAgainAndAgain(t *testing.T) {
	f := newFixture(t)
	id := "iaaaaaaaaaaaaaaaaaaaa"
	paused := routing.Answer{State: routing.Paused, Namespace: "default", Pool: "echo", UID: "uid", Resumes: true}
	f.resolver.setIndex(id, paused)
	f.resolver.live[id] = paused
	f.act.do = func(context.Context, routing.Request) error { return nil }
	a := f.ask(t, ":authority", "8000-"+id+".localhost", ":path", "/")
	if a.status != http.StatusConflict || len(f.act.calls) != 3 || f.outcomes(outcomeRejected, reasonTransitioning) != 1 {
		t.Errorf("answer %+v after %d resumes", a, len(f.act.calls))
	}
}
