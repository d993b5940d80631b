package autoscaler

import (
	"testing"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

var t0 = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func policy(mode v1alpha1.ScaleUpMode) Policy {
	return Policy{
		Mode: mode, Cooldown: 30 * time.Second, IdleThreshold: 30 * time.Second, QuietWindow: 5 * time.Minute,
		SaturationCooldown: time.Minute, IdleTimeout: 5 * time.Minute, Stabilization: time.Minute,
	}
}

// one is a group of one member whose last create was a second ago.
func one(m Member) Snapshot {
	m.Name = "m"
	if m.Max == 0 {
		m.Max = -1
	}
	if m.LastCreate.IsZero() {
		m.LastCreate = t0.Add(-time.Second)
	}
	return Snapshot{Now: t0, Enabled: true, Known: true, Policy: policy(v1alpha1.ScaleUpDefault), Max: -1, Members: []Member{m}}
}

func TestDecide(t *testing.T) {
	ago := func(d time.Duration) time.Time { return t0.Add(-d) }
	for _, c := range []struct {
		name   string
		s      Snapshot
		want   int
		reason Reason
		result v1alpha1.ScaleUpResult
	}{
		{"nothing to do", one(Member{Replicas: 2, Claimed: 8, Idle: 2}), 2, "", ""},
		{"the buffer follows demand", one(Member{Replicas: 2, Claimed: 12, Idle: 2}), 3, ReasonDemand, v1alpha1.ScaleUpEnough},
		{"a step doubles at most", one(Member{Replicas: 2, Claimed: 400, Idle: 2}), 4, ReasonDemand, v1alpha1.ScaleUpEnough},
		{"from nothing", one(Member{Replicas: 0, Waiting: 40}), 1, ReasonDemand, v1alpha1.ScaleUpEnough},
		{"within the cooldown", one(Member{Replicas: 2, Claimed: 12, Idle: 2, State: State{LastUp: ago(29 * time.Second)}}), 2, "", ""},
		{"after the cooldown", one(Member{Replicas: 2, Claimed: 12, Idle: 2, State: State{LastUp: ago(30 * time.Second)}}), 3, ReasonDemand, v1alpha1.ScaleUpEnough},
		{"up to the member's maximum", one(Member{Replicas: 2, Claimed: 12, Idle: 2, Max: 3}), 3, ReasonDemand, v1alpha1.ScaleUpJustRight},
		{"not beyond it", one(Member{Replicas: 3, Claimed: 40, Idle: 3, Max: 4}), 4, ReasonDemand, v1alpha1.ScaleUpInsufficient},
		{"after an attempt that was not enough", one(Member{Replicas: 2, Claimed: 12, Idle: 2, State: State{LastAttempt: ago(59 * time.Second), Result: v1alpha1.ScaleUpJustRight}}), 2, "", v1alpha1.ScaleUpJustRight},
		{"pods that cannot be had", one(Member{Replicas: 2, Claimed: 12, Short: "quota"}), 2, "", v1alpha1.ScaleUpInsufficient},
		{"a buffer that cannot be had, and nobody waits", one(Member{Replicas: 1, Short: "quota"}), 1, "", v1alpha1.ScaleUpInsufficient},
		{"a buffer that is there", one(Member{Replicas: 1, Idle: 1, Short: "at its most"}), 1, "", ""},
		{"while saturated", one(Member{Replicas: 2, Claimed: 12, State: State{SaturatedUntil: t0.Add(time.Second)}}), 2, "", ""},
		{"proactive", one(Member{Replicas: 2, Claimed: 8, State: State{IdleZeroSince: ago(30 * time.Second)}}), 4, ReasonProactive, v1alpha1.ScaleUpEnough},
		{"proactive, up to what the demand justifies", one(Member{Replicas: 4, Claimed: 8, State: State{IdleZeroSince: ago(30 * time.Second)}}), 5, ReasonProactive, v1alpha1.ScaleUpEnough},
		{"proactive, and no further", one(Member{Replicas: 5, Claimed: 8, State: State{IdleZeroSince: ago(30 * time.Second)}}), 5, "", ""},
		{"proactive, too soon", one(Member{Replicas: 2, Claimed: 8, State: State{IdleZeroSince: ago(29 * time.Second)}}), 2, "", ""},
		{"proactive, no create since the last step", one(Member{Replicas: 2, Claimed: 8, LastCreate: ago(50 * time.Second), State: State{IdleZeroSince: ago(time.Hour), LastUp: ago(40 * time.Second)}}), 2, "", ""},
		{"quiet: the buffer is not refilled", one(Member{Replicas: 0, Claimed: 8, LastCreate: ago(5 * time.Minute)}), 0, "", ""},
		{"quiet: the buffer is given up", one(Member{Replicas: 4, Idle: 4, LongIdle: 4, LastCreate: ago(5 * time.Minute)}), 3, ReasonIdle, ""},
		{"in demand: down to the buffer alone", one(Member{Replicas: 4, Claimed: 12, Idle: 4, LongIdle: 4}), 3, ReasonIdle, ""},
		{"only pods that have been idle for long", one(Member{Replicas: 20, Idle: 20, LongIdle: 2, LastCreate: ago(time.Hour)}), 18, ReasonIdle, ""},
		{"stabilisation", one(Member{Replicas: 4, Idle: 4, LongIdle: 4, LastCreate: ago(time.Hour), State: State{LastDown: ago(59 * time.Second)}}), 4, "", ""},
		{"above the minimum", one(Member{Replicas: 4, Min: 4, Idle: 4, LongIdle: 4, LastCreate: ago(time.Hour)}), 4, "", ""},
		{"below the minimum, in a cooldown", one(Member{Replicas: 1, Min: 3, State: State{LastUp: ago(time.Second)}}), 3, ReasonBounds, ""},
		{"above the maximum", one(Member{Replicas: 9, Max: 3}), 3, ReasonBounds, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Decide(c.s).Members[0]
			if got.Replicas != c.want || got.Reason != c.reason || got.State.Result != c.result {
				t.Errorf("%d for %q, result %q; want %d for %q, %q", got.Replicas, got.Reason, got.State.Result, c.want, c.reason, c.result)
			}
		})
	}
}

// What waits anywhere in the group, or is not known, keeps every pod.
func TestNothingShrinks(t *testing.T) {
	idle := Member{Name: "a", Replicas: 8, Max: -1, Idle: 8, LongIdle: 8}
	s := Snapshot{Now: t0, Enabled: true, Known: true, Policy: policy(v1alpha1.ScaleUpDefault), Max: -1, Members: []Member{idle}}
	if got := Decide(s).Members[0].Replicas; got != 6 {
		t.Fatalf("an idle group has %d replicas, want 6", got)
	}
	unknown := s
	unknown.Known = false
	if got := Decide(unknown).Members[0].Replicas; got != 8 {
		t.Errorf("with unknown demand: %d", got)
	}
	waits := s
	waits.Members = []Member{idle, {Name: "b", Replicas: 1, Max: 1, Waiting: 1}}
	if got := Decide(waits).Members[0].Replicas; got != 8 {
		t.Errorf("while a claim waits at a sibling: %d", got)
	}
	off := s
	off.Enabled = false
	if got := Decide(off).Members[0]; got.Replicas != 8 || got.Reason != "" {
		t.Errorf("switched off: %+v", got)
	}
}

// Of two members that want to grow the one with the smaller priority does, unless it
// cannot.
func TestSiblings(t *testing.T) {
	hungry := func(name string, priority int) Member {
		return Member{Name: name, Replicas: 1, Max: -1, UpPriority: priority, Claimed: 40, LastCreate: t0}
	}
	group := func(members ...Member) Snapshot {
		return Snapshot{Now: t0, Enabled: true, Known: true, Policy: policy(v1alpha1.ScaleUpDefault), Max: -1, Members: members}
	}
	replicas := func(s Snapshot) (all []int) {
		for _, m := range Decide(s).Members {
			all = append(all, m.Replicas)
		}
		return all
	}
	first, second := hungry("a", 0), hungry("b", 1)
	for _, c := range []struct {
		name string
		s    Snapshot
		want [2]int
	}{
		{"the first alone", group(first, second), [2]int{2, 1}},
		{"equal ones both", group(first, hungry("b", 0)), [2]int{2, 2}},
		{"the first rests, and is waited for", group(with(first, func(m *Member) { m.State.LastUp = t0 }), second), [2]int{1, 1}},
		{"the first is saturated", group(with(first, func(m *Member) { m.State.SaturatedUntil = t0.Add(time.Hour) }), second), [2]int{1, 2}},
		{"the first is at its maximum", group(with(first, func(m *Member) { m.Max = 1 }), second), [2]int{1, 2}},
	} {
		if got := replicas(c.s); [2]int(got) != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func with(m Member, change func(*Member)) Member {
	change(&m)
	return m
}

// Since when no pod is idle is kept also where autoscaling is off.
func TestBookkeeping(t *testing.T) {
	s := one(Member{Replicas: 1})
	s.Enabled = false
	if got := Decide(s).Members[0].State.IdleZeroSince; !got.Equal(t0) {
		t.Errorf("idle zero since %v, want now", got)
	}
	s.Members[0].State.IdleZeroSince = t0.Add(-time.Minute)
	if got := Decide(s).Members[0].State.IdleZeroSince; !got.Equal(t0.Add(-time.Minute)) {
		t.Errorf("idle zero since %v, want what it was", got)
	}
	s.Members[0].Idle = 1
	if got := Decide(s).Members[0].State.IdleZeroSince; !got.IsZero() {
		t.Errorf("idle zero since %v with an idle pod", got)
	}
	s.Members[0].Idle, s.Members[0].State = 0, State{IdleZeroSince: t0.Add(time.Hour), LastUp: t0.Add(time.Hour)}
	if got := Decide(s).Members[0].State; got.IdleZeroSince.After(t0) || got.LastUp.After(t0) {
		t.Errorf("times ahead of now stay: %+v", got)
	}
}

func BenchmarkDecide(b *testing.B) {
	s := Snapshot{Now: t0, Enabled: true, Known: true, Policy: policy(v1alpha1.ScaleUpDefault), Max: -1}
	for i := range 64 {
		s.Members = append(s.Members, Member{Name: string(rune('a' + i)), Replicas: 10, Max: -1, Claimed: 10, Idle: 6, LastCreate: t0})
	}
	for b.Loop() {
		Decide(s)
	}
}
