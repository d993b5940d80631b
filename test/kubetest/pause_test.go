package kubetest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/bubble"
	"github.com/sandlane/sandlane/test/kubetest"
)

// Dozens of tests wait at a time: one that waits for seconds looks a few times a second,
// and one that need not wait long hardly notices.
func TestEventuallyLooksLess(t *testing.T) {
	for _, c := range []struct {
		comes, noticed time.Duration // after the start, at the latest
		looks          int           // at most
	}{
		{30 * time.Millisecond, 45 * time.Millisecond, 4},
		{200 * time.Millisecond, 270 * time.Millisecond, 12},
		{5 * time.Second, 5300 * time.Millisecond, 40},
		{30 * time.Second, 30300 * time.Millisecond, 140},
	} {
		bubble.Test(t, func(t *testing.T) {
			began, looks := time.Now(), 0
			kubetest.Eventually(t, "it", func() error {
				looks++
				time.Sleep(2 * time.Millisecond) // what a look takes
				if time.Since(began) < c.comes {
					return errors.New("not yet")
				}
				return nil
			})
			if took := time.Since(began); took > c.noticed || looks > c.looks {
				t.Errorf("what comes after %v was noticed after %v and %d looks; want %v, %d", c.comes, took, looks, c.noticed, c.looks)
			}
		})
	}
}
