package controlplane

import (
	"slices"
	"sync"
	"time"
)

// fakeActivity reports what it is told to, and what it was made to remember.
type fakeActivity struct {
	mu      sync.Mutex
	report  ActivityReport
	cursors []uint64
	place   [2]int // the last: index, of
	// seen and used are what was remembered.
	seen []Sighting
	used []Activity
	at   time.Time // when the last of it was
}

func (f *fakeActivity) Remember(seen []Sighting, used []Activity) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.age()
	f.seen, f.used = append(f.seen, seen...), append(f.used, used...)
}

// age makes what was remembered as old as it is. mu is held.
func (f *fakeActivity) age() {
	passed := time.Since(f.at)
	f.at = time.Now()
	for i := range f.seen {
		f.seen[i].Age += passed
	}
	for i := range f.used {
		f.used[i].Age += passed
	}
}

func (f *fakeActivity) placedAt(index, of int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.place = [2]int{index, of}
}

func (f *fakeActivity) placed() [2]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.place
}

func (f *fakeActivity) LastActive(cursor uint64) ActivityReport {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cursors = append(f.cursors, cursor)
	report := f.report
	if cursor == 0 {
		f.age()
		report.Seen = slices.Clone(f.seen)
		report.Entries = append(slices.Clone(report.Entries), f.used...)
	}
	return report
}

func (f *fakeActivity) set(change func(*ActivityReport)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.report)
}
