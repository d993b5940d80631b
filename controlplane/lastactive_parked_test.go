package controlplane

import (
	"testing"
	"time"
)

// A request that was parked before its claim was known is use of the claim, if it
// is the latest that was heard of.
func TestParkedUseIsUseOfTheClaim(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		a := s.run("a", "a")
		start := time.Now()
		a.use.set(func(r *ActivityReport) {
			r.Entries = []Activity{{"sbx", "c", 2 * time.Minute}, {"sbx", "", time.Minute}, {"late", "", time.Minute}, {"late", "c", 0}}
		})
		if err := s.client.Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		for id, ago := range map[string]time.Duration{"sbx": time.Minute, "late": 0} {
			if at, ok := s.client.LastActive(id, "c"); !ok || !at.Equal(start.Add(-ago)) {
				t.Errorf("%s: last active %v before the poll, %v, want %v", id, start.Sub(at), ok, ago)
			}
		}
	})
}
