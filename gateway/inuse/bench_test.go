package inuse

import (
	"fmt"
	"testing"
)

// What a request does that finds its use in its route, and one that makes it.
func TestClaimUseAllocations(t *testing.T) {
	r := NewRegistry(nil)
	s := r.ClaimUse("a", "1")
	if n := testing.AllocsPerRun(1000, func() { s.Touch(r.Now()) }); n != 0 {
		t.Errorf("a touch allocates %v times", n)
	}
	if n := testing.AllocsPerRun(1000, func() { r.ClaimUse("a", "1") }); n != 0 {
		t.Errorf("finding a use allocates %v times", n)
	}
}

func BenchmarkTouch(b *testing.B) {
	r := NewRegistry(nil)
	s := r.ClaimUse("a", "1")
	b.Run("sequential", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Touch(r.Now())
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				s.Touch(r.Now())
			}
		})
	})
}

func BenchmarkClaimUse(b *testing.B) {
	r, ids := NewRegistry(nil), make([]string, 10_000)
	for i := range ids {
		ids[i] = fmt.Sprintf("i%020d", i)
		r.ClaimUse(ids[i], "1")
	}
	b.Run("sequential", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			r.ClaimUse(ids[i%len(ids)], "1")
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				r.ClaimUse(ids[i%len(ids)], "1")
			}
		})
	})
}
