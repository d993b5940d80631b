package limits

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/sandlane/sandlane/test/bubble"
)

// A namespace that takes all the places it can leaves some to others, and waits for its own.
func TestArchivesOfANamespaceLeavePlaces(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := NewArchives(NewReader(Options{MaxStreams: streams}))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		type place struct {
			leave func()
			err   error
		}
		got := make(chan place, 80)
		for range 80 {
			go func() {
				leave, err := a.Wait(ctx, "greedy")
				got <- place{leave, err}
			}()
		}
		synctest.Wait()
		if n := len(got); n < 40 || n > 52 {
			t.Errorf("one namespace has %d of %d places", n, archivePlaces)
		}
		for range 5 {
			leave, err := a.Wait(ctx, "other")
			if err != nil {
				t.Fatal(err)
			}
			defer leave()
		}
		before := len(got)
		for range 10 {
			(<-got).leave()
		}
		synctest.Wait()
		if n := len(got); n >= before || n <= before-10 {
			t.Errorf("%d wait or have places when ten of %d were left", n, before)
		}
		cancel()
		synctest.Wait()
		for range 70 {
			if p := <-got; p.err == nil {
				p.leave()
			}
		}
		if a.of["greedy"] != 0 || a.all != 5 {
			t.Errorf("%d places are taken, %v", a.all, a.of)
		}
	})
}
