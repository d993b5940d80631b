package bubble

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// With synctest.Test instead, the race detector aborts within a tenth of a second.
func TestManyTimersOfABubble(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	for range 10 {
		Test(t, func(*testing.T) {
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					for range 1000 {
						timer := time.NewTimer(0)
						select {
						case <-timer.C:
						default:
						}
						timer.Reset(0)
						<-timer.C
					}
				})
			}
			all.Wait()
		})
	}
	if now := runtime.GOMAXPROCS(0); now != before {
		t.Errorf("%d processors after bubbles, %d before", now, before)
	}
}
