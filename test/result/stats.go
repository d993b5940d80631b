package result

import (
	"errors"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// Rows and samples:
//
// A row is section/case/side/figure, such as dataplane/hit/sandlane/rps, and keeps every
// sample. One sample is one round. The rounds of both sides of a ratio alternate, and so
// does the side that begins, so that other work of the machine meets both. A ratio's
// samples are the ratios of the pairs, never the ratio of two averages. Shown is the median
// with its 95 % confidence interval, which assumes no distribution
// (golang.org/x/perf/benchmath) and takes six samples. A row with fewer has no interval,
// and a comparison gives no verdict on it.
//
// Requests/s are of a closed loop of connections (wrk, or package load; the result says
// which). It leaves out the time that requests would have waited to be sent; wrk
// corrects its latencies for that by an estimate of its own, package load does not. So
// rows named "open" come from a generator that sends at fixed times, at a rate of its
// own, and counts from when a request was due.
//
// Budgets (package report) are judged by the median. If the budget lies within the interval,
// the run does not decide it, and the page says so, even if the median holds the budget.

const (
	// MinSamples is how many samples an interval or a verdict takes.
	MinSamples = 6
	confidence = 0.95
)

// Summary is the median of a row's samples and its interval.
type Summary struct {
	Median float64
	// Low and High hold the median with 95 % confidence, if Known.
	Low, High float64
	Known     bool
}

// Summary sums the row up; it must have a sample.
func (r *Row) Summary() Summary {
	if len(r.Samples) < MinSamples {
		return Summary{Median: Median(r.Samples)}
	}
	s := benchmath.AssumeNothing.Summary(sample(r.Samples, &benchmath.DefaultThresholds), confidence)
	return Summary{Median: s.Center, Low: s.Lo, High: s.Hi, Known: true}
}

// sample copies: benchmath sorts what it is given, and a row keeps its samples in
// the order in which they were taken.
func sample(of []float64, t *benchmath.Thresholds) *benchmath.Sample {
	return benchmath.NewSample(slices.Clone(of), t)
}

// Share returns which percentage of all the part is. An error means that nothing was counted,
// of which there is no share.
func Share(part, all float64) (float64, error) {
	if !(all > 0) {
		return 0, errors.New("nothing was counted")
	}
	return 100 * part / all, nil
}

// Median returns the median of the samples; NaN without samples.
func Median(samples []float64) float64 { return Quantile(samples, 0.5) }

// Quantile returns the value below which the share q of the samples lies, interpolated
// between the two nearest samples; NaN without samples.
func Quantile(samples []float64, q float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(samples))
	at := q * float64(len(s)-1)
	low := int(at)
	if low+1 >= len(s) {
		return s[len(s)-1]
	}
	return s[low] + (at-float64(low))*(s[low+1]-s[low])
}

// Change is how one row moved between two results.
type Change struct {
	Name, Unit string
	Old, New   float64
	Ratio      float64 // New / Old
	P          float64 // of the Mann-Whitney U test; 1 without a verdict
	OldN, NewN int
	Verdict    Verdict
}

// Verdict says which way a row moved.
type Verdict string

// The verdicts.
const (
	NoVerdict  Verdict = "-" // fewer than MinSamples on a side
	Same       Verdict = "~" // no significant difference
	Improved   Verdict = "better"
	Worsened   Verdict = "worse"
	Moved      Verdict = "moved" // of a row where neither way is better
	confidentP         = 0.05
)

// Compare returns the changes of the rows that both have, in b's order, and the
// names of the rows that only one of them has.
func Compare(a, b *Result) (changes []Change, alone []string) {
	for _, row := range b.Rows {
		old := a.Row(row.Name)
		if old == nil || len(old.Samples) == 0 || len(row.Samples) == 0 {
			alone = append(alone, row.Name)
			continue
		}
		changes = append(changes, change(old, row))
	}
	for _, row := range a.Rows {
		if b.Row(row.Name) == nil {
			alone = append(alone, row.Name)
		}
	}
	return changes, alone
}

func change(a, b *Row) Change {
	c := Change{
		Name: b.Name, Unit: b.Unit, Old: Median(a.Samples), New: Median(b.Samples), P: 1,
		OldN: len(a.Samples), NewN: len(b.Samples), Verdict: NoVerdict,
	}
	c.Ratio = c.New / c.Old
	if min(c.OldN, c.NewN) < MinSamples {
		return c
	}
	thresholds := &benchmath.Thresholds{CompareAlpha: confidentP}
	c.P = benchmath.AssumeNothing.Compare(sample(a.Samples, thresholds), sample(b.Samples, thresholds)).P
	switch {
	case c.P >= confidentP || c.New == c.Old:
		c.Verdict = Same
	case b.Better == "":
		c.Verdict = Moved
	case (c.New > c.Old) == (b.Better == "more"):
		c.Verdict = Improved
	default:
		c.Verdict = Worsened
	}
	return c
}
