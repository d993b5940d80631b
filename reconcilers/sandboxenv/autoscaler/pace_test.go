package autoscaler

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// An env at which nothing happens is looked at less and less often; whatever happens
// brings the short wait back.
func TestPace(t *testing.T) {
	env, created := types.NamespacedName{Namespace: "ns", Name: "e"}, time.Unix(1_000_000, 0)
	calm := []sized{{Member: Member{Name: "m", Idle: 2, LastCreate: created}}}
	changed := func(change func(*Member)) []sized {
		m := calm[0]
		change(&m.Member)
		return []sized{m}
	}
	for _, c := range []struct {
		name       string
		generation int64
		members    []sized
		wrote      bool
		want       time.Duration
	}{
		{name: "the same", generation: 1, members: calm, want: longest},
		{name: "the create by another poll", generation: 1, members: changed(func(m *Member) { m.LastCreate = created.Add(time.Millisecond) }), want: longest},
		{name: "another create", generation: 1, members: changed(func(m *Member) { m.LastCreate = created.Add(2 * time.Second) }), want: shortest},
		{name: "fewer idle pods", generation: 1, members: changed(func(m *Member) { m.Idle = 1 }), want: shortest},
		{name: "other bookkeeping", generation: 1, members: changed(func(m *Member) { m.State.IdleZeroSince = created }), want: shortest},
		{name: "a member more", generation: 1, members: append(changed(func(*Member) {}), sized{}), want: shortest},
		{name: "another spec", generation: 2, members: calm, want: shortest},
		{name: "a write", generation: 1, members: calm, wrote: true, want: shortest},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p pace
			for range 10 {
				p.next(env, 1, calm, false)
			}
			got := p.next(env, c.generation, c.members, c.wrote)
			if got < c.want || got > c.want+c.want/5 {
				t.Errorf("the next look is in %v, want %v and up to a fifth more", got, c.want)
			}
		})
	}
	var p pace
	var waits []time.Duration
	for range 6 {
		waits = append(waits, p.next(env, 1, calm, false))
	}
	for i, want := range []time.Duration{shortest, 2 * shortest, 4 * shortest, 8 * shortest, longest, longest} {
		if waits[i] < want || waits[i] > want+want/5 {
			t.Errorf("wait %d is %v, want %v and up to a fifth more", i, waits[i], want)
		}
	}
	p.forget(env)
	if got := p.next(env, 1, calm, false); got > 2*shortest {
		t.Errorf("after the env was forgotten the wait is %v", got)
	}
}
