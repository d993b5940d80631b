package suite

import (
	"strings"
	"testing"
)

// The whole plan fits the limit of 20,000 files that many machines have; where it
// does not fit, the error names the number that is needed.
func TestFilesOfAPlan(t *testing.T) {
	if err := checkFiles(All(), 20_000); err != nil {
		t.Errorf("the whole plan with 20,000 files: %v", err)
	}
	p := Plan{Fleets: []int{10_000, 500}}
	if err := checkFiles(p, 12_000); err != nil {
		t.Errorf("with just enough files: %v", err)
	}
	if err := checkFiles(p, 11_999); err == nil || !strings.Contains(err.Error(), "ulimit -Hn 12000") {
		t.Errorf("with one file too few: %v, want the number that is needed", err)
	}
}
