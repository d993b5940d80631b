package usage

import (
	"context"
	"slices"
	"time"
)

const (
	// sampleEvery is how far apart samples are, as E2B's.
	sampleEvery = 5 * time.Second
	// sampleFor is how long samples are taken after the last question, and kept.
	sampleFor = time.Hour
	// firstOver is what the first share of the processor is taken over.
	firstOver = 200 * time.Millisecond
)

// History returns the samples that are kept and the present use, oldest first. Like
// Present it makes samples be taken every 5 s for an hour from now on.
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

// Present returns the present use. Where nothing was measured for a while it takes a
// moment, so that there is a share of the processor to tell.
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

// ask notes a question: samples are taken from now on. It reports whether there is no
// share of the processor yet, and then begins to measure one.
func (m *Meter) ask() (first bool) {
	at, used := m.now(), m.cpuTime()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = at
	if m.sampler == nil && !m.closed {
		m.sampler = time.AfterFunc(sampleEvery, m.sample)
	}
	if at.Sub(m.last) > 2*sampleEvery { // also at the first question of all
		m.last, m.used, m.pct, m.shared = at, used, 0, false
	}
	return !m.shared
}

// sample keeps a measurement, and comes back until nothing has asked for an hour.
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
