package resync

import (
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/bubble"
)

// The times lie within the bounds, all over them, and end at few moments.
func TestBetween(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const least, most = 8 * time.Second, 12 * time.Second
		moments := map[time.Duration]bool{}
		for range 10_000 {
			d := Between(least, most)
			if d < least || d > most {
				t.Fatalf("%v is not from %v to %v", d, least, most)
			}
			moments[d] = true
			if left := time.Now().Add(d).UnixNano() % int64(together); left != 0 {
				t.Fatalf("a look begins %v after a common moment", time.Duration(left))
			}
			time.Sleep(time.Duration(len(moments)) * time.Microsecond) // the next begins at another time
		}
		for d := least + together; d < most-together; d += together {
			near := false
			for m := range moments {
				near = near || m > d-together && m < d+together
			}
			if !near {
				t.Errorf("no look after about %v", d)
			}
		}
	})
}
