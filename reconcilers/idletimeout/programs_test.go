package idletimeout

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// plain is a source of activity without Preparer and Memory. used is asked at each poll.
type plain struct {
	polls int
	used  func(poll int) bool
}

func (p *plain) Poll(context.Context) error { p.polls++; return nil }

func (p *plain) LastActive(string, string) (time.Time, bool) {
	return time.Now().Add(time.Hour), p.used(p.polls)
}

// A source with Poll and LastActive alone releases what is idle, and not what was used as
// the release began.
func TestSourceOfPollsAlone(t *testing.T) {
	for name, c := range map[string]struct {
		used func(poll int) bool
		want v1alpha1.EndReason
	}{
		"idle":                           {func(int) bool { return false }, v1alpha1.EndIdleTimeout},
		"used between token and the end": {func(poll int) bool { return poll > 2 }, ""},
	} {
		r, clock, client := setup(t, nil, running("a", 5*time.Second))
		r.source = &plain{used: c.used}
		r.check(t.Context())
		clock.Step(5 * time.Second)
		r.check(t.Context())
		if got := ended(t, client, "a"); got != c.want {
			t.Errorf("%s: end %q, want %q", name, got, c.want)
		}
	}
}

// A reconciler that no manager's watch feeds says so, and does not panic.
func TestStartWithoutSetup(t *testing.T) {
	r, _, _ := setup(t, nil)
	r.feed = nil
	if err := r.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "SetupWithManager") {
		t.Errorf("%v", err)
	}
}
