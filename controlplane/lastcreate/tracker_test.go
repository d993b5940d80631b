package lastcreate

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/bubble"
)

var key = types.NamespacedName{Namespace: "n", Name: "p"}

// run starts trackers of as many gateways, and returns what stops them.
func run(t *testing.T, trackers ...*Tracker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, tracker := range trackers {
		running.Go(func() {
			if err := tracker.Start(ctx); err != nil {
				t.Errorf("Start returned %v", err)
			}
		})
	}
	synctest.Wait()
	return func() { cancel(); running.Wait() }
}

// pass lets time go by.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestTrackerWritesOnceAnInterval(t *testing.T) {
	for name, annotations := range map[string]map[string]string{"no annotations": nil, "others": {"a": "b"}} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				a := newAPI(t, annotations)
				tracker := NewTracker(a.client(), 0)
				if at, ok := tracker.Get(key); ok {
					t.Errorf("knows of a create at %v", at)
				}
				defer run(t, tracker)()
				pass(time.Minute)
				if a.written() != 0 {
					t.Errorf("%d writes for a pool that nobody asked for", a.written())
				}
				asked := time.Now()
				for range 100 { // ten a second
					tracker.Bump(key)
					asked = time.Now()
					pass(100 * time.Millisecond)
				}
				if at, ok := tracker.Get(key); !ok || !at.Equal(asked) {
					t.Errorf("Get is %v, %v; want %v", at, ok, asked)
				}
				if n := a.written(); n < 1 || n > 2 {
					t.Errorf("%d writes in two intervals of %v", n, DefaultFlushInterval)
				}
				pass(time.Minute)
				if n := a.written(); n > 2 {
					t.Errorf("%d writes though nothing was asked for since", n)
				}
			})
		})
	}
}

// Many gateways with creates all the time write as often as one.
func TestTrackersShareTheWrites(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := newAPI(t, nil)
		var trackers []*Tracker
		for range 10 {
			trackers = append(trackers, NewTracker(a.client(), 0))
		}
		var stops []func()
		for _, tracker := range trackers {
			stops = append(stops, run(t, tracker))
			pass(137 * time.Millisecond) // their flushes fall at other times
		}
		const intervals = 20
		for range intervals * int(DefaultFlushInterval/(100*time.Millisecond)) {
			for _, tracker := range trackers {
				tracker.Bump(key)
			}
			pass(100 * time.Millisecond)
		}
		if n := a.written(); n < intervals/2 || n > intervals+1 {
			t.Errorf("%d writes by %d gateways in %d intervals", n, len(trackers), intervals)
		}
		for _, stop := range stops {
			stop()
		}
	})
}

func TestTrackerMovesForwardOnly(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := newAPI(t, nil)
		tracker := NewTracker(a.client(), 0)
		defer run(t, tracker)()
		tracker.Bump(key)
		newer := time.Now().Add(3 * time.Second)
		pass(4 * time.Second)
		a.write(newer.UTC().Format(time.RFC3339Nano)) // by another gateway
		pass(10 * time.Second)
		a.wantNoted(newer, "another gateway's is newer")
		if a.written() != 0 {
			t.Errorf("%d writes", a.written())
		}
		tracker.Bump(key)
		at := time.Now()
		pass(DefaultFlushInterval)
		a.wantNoted(at, "asked for again")
		a.write("garbage")
		tracker.Bump(key)
		at = time.Now()
		pass(DefaultFlushInterval)
		a.wantNoted(at, "what is no time is replaced")
	})
}

// Another gateway writes between the look and the write: its value stays.
func TestTrackerTestsWhatItSaw(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := newAPI(t, map[string]string{v1alpha1.AnnotationLastCreate: time.Now().Add(-time.Hour).UTC().Format(time.RFC3339Nano)})
		tracker := NewTracker(a.client(), 0)
		defer run(t, tracker)()
		tracker.Bump(key)
		other := time.Now().Add(4 * time.Second)
		a.set(func(a *api) { a.before = func() { a.write(other.UTC().Format(time.RFC3339Nano)) } })
		pass(DefaultFlushInterval)
		a.wantNoted(other, "written meanwhile")
		pass(DefaultFlushInterval)
		a.wantNoted(other, "and later")
	})
}

// A time that lies ahead counts as now: it stays for an interval, and not for the hours
// that it lies ahead.
func TestTrackerAndTimesThatLieAhead(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ahead := time.Now().Add(time.Hour)
		a := newAPI(t, map[string]string{v1alpha1.AnnotationLastCreate: ahead.UTC().Format(time.RFC3339Nano)})
		tracker := NewTracker(a.client(), 0)
		defer run(t, tracker)()
		tracker.Bump(key)
		pass(DefaultFlushInterval)
		a.wantNoted(ahead, "as new as this gateway's")
		pass(time.Second)
		var at time.Time
		for range 3 {
			tracker.Bump(key)
			at = time.Now()
			pass(DefaultFlushInterval)
		}
		a.wantNoted(at, "an interval later")
	})
}

func TestTrackerWhileTheAPIServerIsAway(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := newAPI(t, nil)
		tracker := NewTracker(a.client(), 0)
		var failures []string
		tracker.OnFailure(func(pools int, err error) { failures = append(failures, fmt.Sprint(pools, " ", err)) })
		defer run(t, tracker)()
		a.set(func(a *api) { a.away = true })
		tracker.Bump(key)
		at := time.Now()
		pass(3 * DefaultFlushInterval)
		if got, ok := tracker.Get(key); !ok || !got.Equal(at) {
			t.Errorf("Get is %v, %v", got, ok)
		}
		if len(failures) != 3 || !strings.HasPrefix(failures[0], "1 ") {
			t.Errorf("failures %q", failures)
		}
		a.set(func(a *api) { a.away = false })
		pass(DefaultFlushInterval)
		a.wantNoted(at, "it is back")
	})
}

func TestTrackerForgetsAPoolThatIsGone(t *testing.T) {
	for name, known := range map[string]bool{"read": false, "by the index": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				a := newAPI(t, nil)
				tracker := NewTracker(a.client(), 0)
				var gone atomic.Bool
				if known {
					tracker.Known(func(types.NamespacedName) (string, bool) { return "", !gone.Load() })
				}
				defer run(t, tracker)()
				tracker.Bump(key)
				pass(DefaultFlushInterval)
				pool := &v1alpha1.SandboxPool{}
				pool.Namespace, pool.Name = key.Namespace, key.Name
				if err := a.c.Delete(t.Context(), pool); err != nil {
					t.Fatal(err)
				}
				gone.Store(true)
				if !known {
					tracker.Bump(key)
				}
				pass(DefaultFlushInterval)
				if at, ok := tracker.Get(key); ok || len(tracker.All()) != 0 {
					t.Errorf("remembers the pool: %v", at)
				}
			})
		})
	}
}

// The index may be behind: the API server says that the pool is gone.
func TestTrackerForgetsAPoolThatTheIndexStillHas(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		tracker := NewTracker(newAPI(t, nil).client(), 0)
		tracker.Known(func(types.NamespacedName) (string, bool) { return "", true })
		defer run(t, tracker)()
		gone := types.NamespacedName{Namespace: "n", Name: "gone"}
		tracker.Bump(gone)
		pass(DefaultFlushInterval)
		if _, ok := tracker.Get(gone); ok {
			t.Error("remembers the pool")
		}
	})
}

func TestTrackerFlushesAtTheStop(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := newAPI(t, nil)
		tracker := NewTracker(a.client(), 0)
		stop := run(t, tracker)
		tracker.Bump(key)
		at := time.Now()
		stop()
		a.wantNoted(at, "after the stop")

		tracker = NewTracker(a.client(), 0)
		stop = run(t, tracker)
		a.set(func(a *api) { a.hang = true })
		pass(time.Second)
		tracker.Bump(key)
		began := time.Now()
		stop()
		if took := time.Since(began); took > lastFlushTimeout {
			t.Errorf("the stop took %v of an API server that hangs", took)
		}
	})
}

func TestTrackerThatIsNil(t *testing.T) {
	var tracker *Tracker
	tracker.Bump(key)
	if at, ok := tracker.Get(key); ok || !at.IsZero() {
		t.Errorf("Get is %v, %v", at, ok)
	}
	if tracker.All() != nil {
		t.Error("All knows something")
	}
}

func TestTrackerForTestTakesAClock(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	tracker := NewTrackerForTest(newAPI(t, nil).client(), time.Second, c)
	if err := tracker.RegisterMetrics(prometheus.NewPedanticRegistry()); err != nil {
		t.Error(err)
	}
	tracker.Bump(key)
	if at, ok := tracker.Get(key); !ok || !at.Equal(time.Unix(1e9, 0)) {
		t.Errorf("Get is %v, %v", at, ok)
	}
	if tracker.NeedLeaderElection() {
		t.Error("only one gateway tracks")
	}
}

// A Bump costs no allocation, and no write: each create makes one.
func TestBumpDoesNotAllocate(t *testing.T) {
	tracker := NewTrackerForTest(nil, 0, clock.RealClock{})
	tracker.Bump(key)
	if n := testing.AllocsPerRun(1000, func() { tracker.Bump(key) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkBump(b *testing.B) {
	tracker := NewTracker(nil, 0)
	tracker.Bump(key)
	b.Run("sequential", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tracker.Bump(key)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				tracker.Bump(key)
			}
		})
	})
}
