package steadyclock

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandlane/sandlane/test/bubble"
)

// machine is a clock whose wall and monotonic times go apart.
type machine struct {
	at   time.Duration
	step time.Duration
}

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func (m *machine) clock() *Clock {
	return From(func() time.Time { return noon.Add(m.at + m.step) }, func() time.Duration { return m.at })
}

func TestStepsThatAreTakenBackDoNothing(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour, 2 * time.Second, 24 * 365 * time.Hour} {
		m := &machine{}
		c := m.clock()
		for m.at = 0; m.at < 10*time.Minute; m.at += 5 * time.Second {
			m.step = 0
			if m.at%(2*time.Minute) >= time.Minute+5*time.Second { // away for 55 s, again and again
				m.step = step
			}
			if got, want := c.Now(), noon.Add(m.at); !got.Equal(want) {
				t.Fatalf("step %v: at %v it is %v", step, m.at, got.Sub(want))
			}
		}
	}
}

func TestStepThatStaysIsBelieved(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		m := &machine{}
		c := m.clock()
		m.at, m.step = time.Minute, step
		for ; m.at < 2*time.Minute; m.at += time.Second {
			if got := c.Now(); !got.Equal(noon.Add(m.at)) {
				t.Fatalf("step %v is believed after %v", step, m.at-time.Minute)
			}
		}
		if got := c.Now(); !got.Equal(noon.Add(m.at+step)) || c.Since(got) != 0 {
			t.Errorf("step %v is not believed after a minute: %v", step, got)
		}
	}
}

// Steps that differ from each other are as many doubts: none of them has stood
// for a minute.
func TestRestlessClockIsNotBelieved(t *testing.T) {
	m := &machine{}
	c := m.clock()
	for m.at = time.Second; m.at < 10*time.Minute; m.at += time.Second {
		m.step += time.Minute
		if got := c.Now(); !got.Equal(noon.Add(m.at)) {
			t.Fatalf("believed at %v", m.at)
		}
	}
}

func TestSlewIsFollowed(t *testing.T) {
	m := &machine{}
	c := m.clock()
	for m.at = 0; m.at < time.Hour; m.at += 10 * time.Second {
		m.step += 5 * time.Millisecond
		if got := c.Now(); !got.Equal(noon.Add(m.at + m.step)) {
			t.Fatalf("at %v it is %v behind", m.at, noon.Add(m.at+m.step).Sub(got))
		}
	}
}

// Keep notices a step though no other call reads the clock, and tells it once.
func TestKeep(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		start, step, told := time.Now(), atomic.Int64{}, atomic.Int64{}
		c := From(func() time.Time { return time.Now().Round(0).Add(time.Duration(step.Load())) }, func() time.Duration { return time.Since(start) })
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); c.Keep(ctx, func() { told.Add(1) }) }()
		for n, to := range []time.Duration{time.Hour, -time.Hour} {
			step.Store(int64(to))
			time.Sleep(trial - time.Nanosecond)
			synctest.Wait()
			if told.Load() != int64(n) {
				t.Fatalf("step %v told within a minute", to)
			}
			time.Sleep(2*every + time.Nanosecond)
			synctest.Wait()
			if told.Load() != int64(n+1) || !c.Now().Equal(time.Now().Add(to)) {
				t.Fatalf("step %v told %d times, off by %v", to, told.Load(), c.Now().Sub(time.Now().Add(to)))
			}
		}
		stop()
		<-done
	})
}

func TestNew(t *testing.T) {
	if d := time.Since(New().Now()).Abs(); d > time.Minute {
		t.Errorf("off by %v", d)
	}
}
