package inuse

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandlane/sandlane/controlplane"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeNow is a clock that tests move.
type fakeNow struct {
	mu  sync.Mutex
	now time.Time
}

func newNow() *fakeNow { return &fakeNow{now: time.Unix(1000, 0)} }

func (f *fakeNow) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *fakeNow) step(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

// lines returns a report's entries, sorted.
func lines(r controlplane.ActivityReport) string {
	var all []string
	for _, e := range r.Entries {
		all = append(all, fmt.Sprintf("%s/%s %v", e.SandboxID, e.ClaimID, e.Age))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func TestLastActive(t *testing.T) {
	now := newNow()
	r := NewRegistry(now.Now)
	var cursor uint64
	want := func(what, want string) {
		t.Helper()
		report := r.LastActive(cursor)
		if report.Cursor <= cursor {
			t.Errorf("%s: the cursor went from %d to %d", what, cursor, report.Cursor)
		}
		if report.Known {
			t.Errorf("%s: known without a poll", what)
		}
		cursor = report.Cursor
		if got := lines(report); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	want("empty", "")
	a, b := r.ClaimUse("a", "1"), r.ClaimUse("b", "1")
	want("untouched", "")
	a.Touch(r.Now())
	now.step(2 * time.Second)
	b.Touch(r.Now())
	want("both", "a/1 2s, b/1 0s")
	want("nothing new", "")
	now.step(time.Second)
	if r.ClaimUse("a", "1") != a {
		t.Error("a second use for one claim")
	}
	a.Touch(r.Now())
	want("one", "a/1 0s")
	if got := lines(r.LastActive(0)); got != "a/1 0s, b/1 1s" {
		t.Errorf("from the beginning: %q", got)
	}
	if got := lines(r.LastActive(1 << 63)); got != "a/1 0s, b/1 1s" {
		t.Errorf("from another instance's cursor: %q", got)
	}
	r.ClaimEnded("a", "1")
	a.Touch(r.Now())
	want("over", "")
	if NewRegistry(nil).instance == r.instance {
		t.Error("two instances of one name")
	}
}

// A handler may read the clock, be overtaken by a report, and write then.
func TestSinceSeesLateTouches(t *testing.T) {
	now := newNow()
	r := NewRegistry(now.Now)
	s := r.ClaimUse("a", "1")
	read := r.Now()
	now.step(time.Second)
	cursor := r.LastActive(0).Cursor
	s.Touch(read)
	now.step(time.Second)
	if got := lines(r.LastActive(cursor)); got != "a/1 2s" {
		t.Errorf("a touch that was written late is lost: %q", got)
	}
}

// Two readers with cursors of their own both see each touch.
func TestSinceForTwoReaders(t *testing.T) {
	now := newNow()
	r := NewRegistry(now.Now)
	s := r.ClaimUse("a", "1")
	one, two := r.LastActive(0).Cursor, r.LastActive(0).Cursor
	s.Touch(r.Now())
	if got := lines(r.LastActive(one)); got != "a/1 0s" {
		t.Errorf("first reader: %q", got)
	}
	if got := lines(r.LastActive(two)); got != "a/1 0s" {
		t.Errorf("second reader: %q", got)
	}
}

func TestPark(t *testing.T) {
	now := newNow()
	r := NewRegistry(now.Now)
	first, second := r.Park("a"), r.Park("a")
	cursor := r.LastActive(0).Cursor
	for range 2 {
		report := r.LastActive(cursor)
		if got := lines(report); got != "a/ 0s" {
			t.Errorf("parked without a claim: %q", got)
		}
		cursor = report.Cursor
	}
	r.ClaimUse("a", "1").Touch(r.Now())
	r.ClaimUse("a", "2")
	now.step(time.Hour)
	if got := lines(r.LastActive(cursor)); got != "a/1 0s, a/2 0s" {
		t.Errorf("parked with claims: %q", got)
	}
	first()
	first()
	now.step(time.Minute)
	if got := lines(r.LastActive(r.cursor)); got != "a/1 0s, a/2 0s" {
		t.Errorf("one of two left: %q", got)
	}
	second()
	now.step(time.Second)
	if got := lines(r.LastActive(r.cursor)); got != "a/1 1s, a/2 1s" {
		t.Errorf("both left: %q", got)
	}
	r.Park("gone")()
	if got := lines(r.LastActive(r.cursor)); got != "" || len(r.parked) != 0 {
		t.Errorf("nothing parked: %q", got)
	}
}

func TestOver(t *testing.T) {
	r := NewRegistry(newNow().Now)
	for _, claim := range []string{"1", "2", "3"} {
		r.ClaimUse("a", claim).Touch(r.Now())
	}
	r.ClaimEnded("a", "2")
	if got := lines(r.LastActive(0)); got != "a/1 0s, a/3 0s" {
		t.Errorf("the middle one over: %q", got)
	}
	r.ClaimEnded("a", "3")
	r.ClaimEnded("a", "3")
	r.ClaimEnded("b", "1")
	if got := lines(r.LastActive(0)); got != "a/1 0s" {
		t.Errorf("two over: %q", got)
	}
	// A resolve that comes late does not bring a claim back.
	r.ClaimUse("a", "3").Touch(r.Now())
	r.ClaimUse("b", "1").Touch(r.Now())
	if got := lines(r.LastActive(0)); got != "a/1 0s" {
		t.Errorf("a claim that is over came back: %q", got)
	}
	r.ClaimEnded("a", "1")
	if len(r.entries) != 0 {
		t.Errorf("%d entries left", len(r.entries))
	}
	for i := range 3 * maxEnded {
		r.ClaimEnded("c", fmt.Sprint(i))
	}
	if len(r.ended) != maxEnded || len(r.endedOrder) != maxEnded {
		t.Errorf("%d claims remembered as over, want %d", len(r.ended), maxEnded)
	}
}

func TestMonotonic(t *testing.T) {
	now := Monotonic()
	a := now()
	b := now()
	if b.Before(a) || time.Since(a).Abs() > time.Minute {
		t.Errorf("%v, then %v", a, b)
	}
}

// Whatever the order was, every claim that is not over is there, once and noted,
// and nothing else is.
func TestConcurrentUse(t *testing.T) {
	const users, ids, rounds, kept = 4, 7, 1000, 10
	r := NewRegistry(nil)
	name := func(user, round int) (id, claim string) { return fmt.Sprint(round % ids), fmt.Sprint(user, "-", round) }
	var all sync.WaitGroup
	for g := range users {
		all.Go(func() {
			for i := range rounds {
				id, claim := name(g, i)
				r.ClaimUse(id, claim).Touch(r.Now())
				r.Park(id)()
				if i%5 == 0 {
					r.LastActive(0)
				}
				if i >= kept {
					id, claim := name(g, i-kept)
					r.ClaimEnded(id, claim)
					r.ClaimUse(id, claim).Touch(r.Now()) // late
				}
			}
		})
	}
	all.Wait()
	var want []string
	for g := range users {
		for i := rounds - kept; i < rounds; i++ {
			id, claim := name(g, i)
			want = append(want, id+"/"+claim)
		}
	}
	slices.Sort(want)
	var got []string
	for _, e := range r.LastActive(0).Entries {
		got = append(got, e.SandboxID+"/"+e.ClaimID)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("in use are %v, want %v", got, want)
	}
	for i, e := range r.all {
		if e.index != i || r.find(e.id, e.claim) != e {
			t.Errorf("entry %s/%s is not where it is looked for", e.id, e.claim)
		}
	}
	if len(r.all) != len(want) || len(r.parked) != 0 || len(r.ended) != users*(rounds-kept) {
		t.Errorf("%d entries, %d IDs parked, %d claims over; want %d, 0, %d", len(r.all), len(r.parked), len(r.ended), len(want), users*(rounds-kept))
	}
}

func BenchmarkLastActive(b *testing.B) {
	const claims = 100_000
	r := NewRegistry(nil)
	uses := make([]interface{ Touch(int64) }, claims)
	for i := range uses {
		uses[i] = r.ClaimUse(fmt.Sprintf("i%020d", i), fmt.Sprintf("c%020d", i))
	}
	cursor := r.LastActive(0).Cursor
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		now := r.Now()
		for i := range claims / 100 {
			uses[(i*100+n)%claims].Touch(now)
		}
		report := r.LastActive(cursor)
		if len(report.Entries) != claims/100 {
			b.Fatalf("%d entries", len(report.Entries))
		}
		cursor = report.Cursor
	}
}
