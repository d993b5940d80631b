package result

import (
	"math"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func row(r *Result, name, better string, samples ...float64) { r.Add(name, "x", better, samples...) }

// A verdict needs six samples on both sides; a row with fewer says what it is.
func TestCompare(t *testing.T) {
	low, high := []float64{1, 2, 3, 4, 5, 6}, []float64{11, 12, 13, 14, 15, 16}
	a, b := &Result{}, &Result{}
	for _, c := range []struct {
		name, better string
		a, b         []float64
		want         Verdict
	}{
		{"s/c/x/up", "more", low, high, Improved},
		{"s/c/x/down", "less", low, high, Worsened},
		{"s/c/x/down2", "less", high, low, Improved},
		{"s/c/x/neither", "", low, high, Moved},
		{"s/c/x/same", "more", low, []float64{6, 5, 4, 3, 2, 1}, Same},
		{"s/c/x/few", "more", low[:5], high, NoVerdict},
		{"s/c/x/few2", "more", low, high[:1], NoVerdict},
	} {
		row(a, c.name, c.better, c.a...)
		row(b, c.name, c.better, c.b...)
		changes, _ := Compare(a, b)
		if got := changes[len(changes)-1]; got.Verdict != c.want {
			t.Errorf("%s: %s (p=%v), want %s", c.name, got.Verdict, got.P, c.want)
		}
	}
	row(a, "s/c/x/gone", "more", 1)
	row(b, "s/c/x/new", "more", 1)
	if _, alone := Compare(a, b); !reflect.DeepEqual(alone, []string{"s/c/x/new", "s/c/x/gone"}) {
		t.Errorf("alone: %v", alone)
	}
}

func TestSummary(t *testing.T) {
	five := &Row{Samples: []float64{5, 1, 4, 2, 3}}
	if s := five.Summary(); s.Known || s.Median != 3 {
		t.Errorf("of five samples: %+v", s)
	}
	ten := &Row{Samples: []float64{10, 1, 9, 2, 8, 3, 7, 4, 6, 5}}
	if s := ten.Summary(); !s.Known || s.Median != 5.5 || s.Low != 2 || s.High != 9 {
		t.Errorf("of ten samples: %+v, want the second and the ninth around 5.5", s)
	}
	if ten.Samples[0] != 10 || ten.Samples[9] != 5 {
		t.Errorf("the samples lost their order: %v", ten.Samples)
	}
}

// A machine with more to run than half of its cores is crowded; one whose load is not known
// is not.
func TestCrowded(t *testing.T) {
	for load, want := range map[string]bool{"0.94 3.74 4.58": false, "1.01 0.1 0.1": true, "": false} {
		if got := (Machine{Cores: 2, LoadAverage: load}).Crowded(); got != want {
			t.Errorf("%q: %v", load, got)
		}
	}
}

func TestQuantile(t *testing.T) {
	s := []float64{4, 1, 3, 2}
	for q, want := range map[float64]float64{0: 1, 0.5: 2.5, 1: 4} {
		if got := Quantile(s, q); got != want {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
	if !math.IsNaN(Median(nil)) {
		t.Error("the median of nothing is a number")
	}
}

func TestAddLeavesOutWhatIsNoNumber(t *testing.T) {
	r := &Result{}
	if got := r.Add("a/b/c/d", "x", "more", 1, math.NaN(), math.Inf(1), 2).Samples; !reflect.DeepEqual(got, []float64{1, 2}) {
		t.Errorf("%v", got)
	}
}

func TestHeadlineSurvivesItsFile(t *testing.T) {
	r := &Result{Started: time.Unix(1700000000, 0).UTC(), Machine: ThisMachine()}
	r.Add("d/hit/ratio/a", "ratio", "more", 0.9, 0.95, 1, 1.05, 1.1, 1.15, 1.2)
	r.Add("d/hit/ratio/b", "ratio", "more", 0.4)
	r.SetHeadline("d/hit/ratio/a", "d/hit/ratio/b")
	path := filepath.Join(t.TempDir(), "r.json")
	if err := r.Save(path); err != nil {
		t.Fatal(err)
	}
	got, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, r) {
		t.Errorf("read back: %+v, want %+v", got, r)
	}
	want := Headline{VsDoNothing: 1.05, VsDoNothingInterval: []float64{0.9, 1.2}, VsPlain: 0.4, Pairs: 7}
	if !reflect.DeepEqual(got.Headline, want) {
		t.Errorf("headline %+v, want %+v", got.Headline, want)
	}
}

func TestLoadRefusesOtherFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	if err := (&Result{}).Save(path); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil {
		t.Error("a result without rows was read")
	}
}

// Nothing counted is no share.
func TestShare(t *testing.T) {
	if share, err := Share(1, 4); err != nil || share != 25 {
		t.Errorf("1 of 4: %g, %v", share, err)
	}
	if share, err := Share(0, 0); err == nil {
		t.Errorf("0 of 0 is a share of %g", share)
	}
}
