package usage

import (
	"context"
	"slices"
	"time"
)

const (
	// sampleEvery is the time between two samples; it is the same as E2B's.
	sampleEvery = 5 * time.Second
	// sampleFor is how long samples are taken after the last request for metrics, and how
	// long each is kept.
	sampleFor = time.Hour
	// firstOver is the time over which the first share of the processor is measured.
	firstOver = 200 * time.Millisecond
)

// History returns the kept samples and the present use, oldest first. Like Present it causes
// samples every 5 s for an hour from now on.
func (m *Meter) History(ctx context.Context) []Metrics {
	present := m.Present(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.Clone(m.samples)
	if n := len(all); n > 0 && all[n-1].TS == present.TS {
		all = all[:n-1]
	}
	return append(all, present)
}

// Present returns the present use. If nothing was measured for a while, it first takes
// firstOver to measure the share of the processor.
func (m *Meter) Present(ctx context.Context) Metrics {
	if m.ask() {
		timer := time.NewTimer(firstOver)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return m.Measure()
}

// ask notes a request for metrics: samples are taken from now on. It reports whether no share
// of the processor is known yet, and in that case begins to measure one.
func (m *Meter) ask() (first bool) {
	at, used := m.now(), m.cpuTime()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = at
	if m.sampler == nil && !m.closed {
		m.sampler = time.AfterFunc(sampleEvery, m.sample)
	}
	if at.Sub(m.last) > 2*sampleEvery { // also at the first request
		m.last, m.used, m.pct, m.measured = at, used, 0, false
	}
	return !m.measured
}

// sample takes and keeps a sample, and sets the timer for the next one unless there was no
// request for an hour.
func (m *Meter) sample() {
	metrics := m.Measure()
	at := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || at.Sub(m.asked) > sampleFor {
		m.sampler = nil
		return
	}
	m.samples = append(m.samples, metrics)
	if most := int(sampleFor / sampleEvery); len(m.samples) > most {
		m.samples = slices.Delete(m.samples, 0, len(m.samples)-most)
	}
	m.sampler.Reset(sampleEvery)
}

// Close ends the taking of samples.
func (m *Meter) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.sampler != nil {
		m.sampler.Stop()
	}
}
