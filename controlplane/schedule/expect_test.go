package schedule

import (
	"testing"
	"time"
)

// A pod is to spare for one request: that which waits for it, or is expected.
func TestExpect(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		expect := func(when string, want bool) (arrived func()) {
			t.Helper()
			arrived, ok := r.Expect()
			if ok != want || r.Spare() && !want {
				t.Fatalf("%s: expected is %v, spare is %v, want %v", when, ok, r.Spare(), want)
			}
			return arrived
		}
		expect("no pod", false)
		r.stockUp("p1", "p2")
		first := expect("two pods", true)
		second := expect("one is expected", true)
		expect("two are expected", false)
		first()
		first() // again
		third := expect("one has arrived, or stayed away", true)
		expect("two are expected", false)
		q := r.ask(t, "a", time.Hour)
		second()
		gets(t, q, "p1")
		expect("one pod is claimed, for the other one is expected", false)
		third()
		expect("one pod, and none is expected", true)()
	})
}
