package daemon

import "testing"

func TestSharedProcessors(t *testing.T) {
	for _, c := range []struct {
		name             string
		allowed, machine int
		chosen           string
		want             int
	}{
		{"one", 1, 1, "", 1},
		{"two", 2, 2, "", 1},
		{"three", 3, 3, "", 2},
		{"eight", 8, 8, "", 4},
		{"a container's limit", 2, 8, "", 0},
		{"chosen", 2, 2, "2", 0},
	} {
		if got := shared(c.allowed, c.machine, c.chosen); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
