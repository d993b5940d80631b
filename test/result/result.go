// Package result is the result of a run of the benchmarks: rows of samples, facts of the
// machine, and the headline, kept as JSON. It summarises a row's samples and compares two
// results. It measures nothing and draws nothing. bench calls it, and test/helm for what it
// times on a real node.
package result

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"time"
)

// Result is one run.
type Result struct {
	Started time.Time `json:"started"`
	Took    string    `json:"took"`
	Version string    `json:"version"` // of the code that was measured
	Plan    string    `json:"plan"`    // all or quick
	Extent  string    `json:"extent"`  // rounds of each kind, and how long they are
	Machine Machine   `json:"machine"`
	// Stolen is the share of the processors' time that the hypervisor gave to
	// others during the run, from 0 to 1; 0 also where that is not known.
	Stolen   float64  `json:"cpu_stolen"`
	Headline Headline `json:"headline"`
	Rows     []*Row   `json:"rows"`
	// Notes are for the reader: which settings were chosen, what was not measured.
	Notes []string `json:"notes,omitempty"`
}

// Headline is the two ratios of requests/s that count, 0 if they were not measured.
type Headline struct {
	VsDoNothing         float64   `json:"vs_do_nothing_extproc"`
	VsDoNothingInterval []float64 `json:"vs_do_nothing_extproc_interval,omitempty"`
	VsPlain             float64   `json:"vs_plain_envoy"`
	VsPlainInterval     []float64 `json:"vs_plain_envoy_interval,omitempty"`
	Pairs               int       `json:"pairs"`
}

// Row is one figure with all its samples.
type Row struct {
	// Name is section/case/side/figure.
	Name string `json:"name"`
	Unit string `json:"unit"`
	// Better is "more", "less", or empty if neither is better.
	Better  string    `json:"better,omitempty"`
	Samples []float64 `json:"samples"`
	// Budget is what bench/report/budgets.go asks of the median.
	Budget *Budget `json:"budget,omitempty"`
	Note   string  `json:"note,omitempty"`
}

// Budget is a bound on a median: at least it if More, else at most it.
type Budget struct {
	More  bool    `json:"more"`
	Value float64 `json:"value"`
}

// Holds reports whether a median is within the budget.
func (b *Budget) Holds(median float64) bool {
	if b.More {
		return median >= b.Value
	}
	return median <= b.Value
}

func (b *Budget) String() string {
	if b.More {
		return fmt.Sprintf("≥ %g", b.Value)
	}
	return fmt.Sprintf("≤ %g", b.Value)
}

// Section is the first part of the row's name.
func (r *Row) Section() string {
	section, _, _ := strings.Cut(r.Name, "/")
	return section
}

// Row returns the row of that name, nil if there is none.
func (r *Result) Row(name string) *Row {
	for _, row := range r.Rows {
		if row.Name == name {
			return row
		}
	}
	return nil
}

// Add adds samples to the row of that name, which is made if need be. Samples
// that are no number are left out: a round without a request has no latency.
func (r *Result) Add(name, unit, better string, samples ...float64) *Row {
	row := r.Row(name)
	if row == nil {
		row = &Row{Name: name, Unit: unit, Better: better, Samples: []float64{}}
		r.Rows = append(r.Rows, row)
	}
	for _, s := range samples {
		if !math.IsNaN(s) && !math.IsInf(s, 0) {
			row.Samples = append(row.Samples, s)
		}
	}
	return row
}

// SetHeadline takes the headline from its rows.
func (r *Result) SetHeadline(doNothing, plain string) {
	take := func(name string) (float64, []float64, int) {
		row := r.Row(name)
		if row == nil || len(row.Samples) == 0 {
			return 0, nil, 0
		}
		s := row.Summary()
		if !s.Known {
			return s.Median, nil, len(row.Samples)
		}
		return s.Median, []float64{s.Low, s.High}, len(row.Samples)
	}
	h := &r.Headline
	h.VsDoNothing, h.VsDoNothingInterval, h.Pairs = take(doNothing)
	h.VsPlain, h.VsPlainInterval, _ = take(plain)
}

// Load reads a result.
func Load(path string) (*Result, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read a result: %w", err)
	}
	r := &Result{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read the result %s: %w", path, err)
	}
	if r.Started.IsZero() || len(r.Rows) == 0 {
		return nil, fmt.Errorf("%s is no result of sandlane-bench", path)
	}
	return r, nil
}

// Save writes the result.
func (r *Result) Save(path string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("write a result: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write a result: %w", err)
	}
	return nil
}
