package pause

import (
	"errors"
	"testing"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/index"
	"github.com/sandlane/sandlane/routecache"
)

// An index that is behind this gateway's own write is not believed; one that is not, is.
func TestCorrect(t *testing.T) {
	p, err := New(nil, routecache.New(10), nil)
	if err != nil {
		t.Fatal(err)
	}
	p.own.Add("paused", write{5, true})
	p.own.Add("resumed", write{5, false})
	for _, c := range []struct {
		claim      string
		generation int64
		state      index.State
		want       index.State
	}{
		{"paused", 4, index.Running, index.Paused}, {"paused", 5, index.Paused, index.Paused}, {"paused", 6, index.Running, index.Running},
		{"paused", 4, index.Ended, index.Ended}, {"resumed", 4, index.Paused, index.Waking}, {"resumed", 4, index.Running, index.Waking},
		{"resumed", 5, index.Running, index.Running}, {"other", 4, index.Running, index.Running}, {"", 0, index.NoPod, index.NoPod},
	} {
		a := p.Correct(index.Answer{ClaimID: c.claim, Generation: c.generation, State: c.state, Route: &routecache.Route{}})
		if a.State != c.want || (a.Route == nil) != (a.State != c.state) {
			t.Errorf("%s at %d, %s: %s, route %v", c.claim, c.generation, c.state, a.State, a.Route)
		}
	}
}

// Of two writes the later one counts, whichever answer comes first.
func TestLaterWriteIsRemembered(t *testing.T) {
	p, err := New(nil, routecache.New(10), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []write{{6, true}, {5, false}} {
		p.remember("c", w)
	}
	if a := p.Correct(index.Answer{ClaimID: "c", Generation: 5, State: index.Running}); a.State != index.Paused {
		t.Errorf("it is %s", a.State)
	}
}

// A sandbox that does not run, or is about to be released, is not paused.
func TestPauseOfWhatDoesNotRun(t *testing.T) {
	p, err := New(nil, routecache.New(10), nil) // nothing is read or written
	if err != nil {
		t.Fatal(err)
	}
	bound := &v1alpha1.Binding{ClaimID: "c"}
	for what, spec := range map[string]v1alpha1.SandboxSpec{
		"unbound":        {},
		"paused already": {Binding: bound, Paused: true},
		"being released": {Binding: bound, Release: &v1alpha1.Release{}},
	} {
		if err := p.Pause(t.Context(), &v1alpha1.Sandbox{Spec: spec}); !errors.Is(err, ErrNotRunning) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
