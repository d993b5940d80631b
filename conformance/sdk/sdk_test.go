package sdk

import (
	"reflect"
	"slices"
	"testing"
)

// Each pinned version is read, and has its lock files; what is no version is refused.
func TestParse(t *testing.T) {
	if !slices.Contains(Pinned(), "python==2.63.0") || !slices.Contains(Pinned(), "js==2.51.0") {
		t.Errorf("pinned are %v", Pinned())
	}
	for _, text := range Pinned() {
		all, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		for _, s := range all {
			if s.locks() == nil {
				t.Errorf("%s has no lock file", s)
			}
		}
	}
	got, err := Parse("python==2.50.1")
	if want := []SDK{{"python", "2.50.1", false}, {"python", "2.50.1", true}}; err != nil || !reflect.DeepEqual(got, want) || got[0].locks() != nil {
		t.Errorf("got %v, %v", got, err)
	}
	for _, text := range []string{"", "python", "python==", "ruby==1.0.0", "js==../../x", "js==2.51", "js==2.51.0 "} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}
