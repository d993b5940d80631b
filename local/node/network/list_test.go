package network

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
)

// A list during which another process made or removed a link is asked for again; any other
// failure is told, and so is one that does not end.
func TestListed(t *testing.T) {
	t.Parallel()
	other := errors.New("other")
	for _, c := range []struct {
		name        string
		interrupted int // times
		then, want  error
		asked       int
	}{
		{name: "at once", asked: 1},
		{name: "changed meanwhile", interrupted: 2, asked: 3},
		{name: "fails", interrupted: 1, then: other, want: other, asked: 2},
		{name: "never whole", interrupted: listTries + 1, want: netlink.ErrDumpInterrupted, asked: listTries},
	} {
		asked := 0
		all, err := listed(func() ([]int, error) {
			if asked++; asked <= c.interrupted {
				return []int{0}, netlink.ErrDumpInterrupted
			}
			return []int{1, 2}, c.then
		})
		if !errors.Is(err, c.want) || asked != c.asked || err == nil && len(all) != 2 {
			t.Errorf("%s: %v, %v, asked %d times", c.name, all, err, asked)
		}
	}
}
