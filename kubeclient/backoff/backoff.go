// Package backoff is how Sandlane waits between tries. A loop that tries again makes a
// Doubling, and before each further try calls Sleep with the next Step:
//
//	for delays := backoff.Doubling(50*time.Millisecond, time.Second); ; {
//		err := try(ctx)
//		if err == nil || !backoff.Sleep(ctx, delays.Step()) {
//			return err
//		}
//	}
//
// The delays are those of k8s.io/apimachinery, without jitter, so that tests in
// virtual time (testing/synctest) see the same ones each time. What tries again without a
// loop, as a reconciler, keeps its last delay and asks Next. A Doubling belongs to one
// loop; the functions are safe for concurrent use.
package backoff

import (
	"context"
	"math"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Doubling returns delays that begin with first, double, and stay at most: Step
// returns the next one.
func Doubling(first, most time.Duration) *wait.Backoff {
	return &wait.Backoff{Duration: first, Factor: 2, Cap: most, Steps: math.MaxInt}
}

// Next returns the delay after one of length last, for callers that keep the delay between
// their tries: first if last is 0, else twice last, and at most most.
func Next(last, first, most time.Duration) time.Duration {
	return min(max(2*last, first), most)
}

// Reconnecting returns the delays of a reflector at an API server that does not answer:
// between 0.2 and 4 s, at random, so that not all reflectors come back at once. client-go's
// own delays last up to a minute, and a gateway that started while the API server was away
// serves no request before its lists are read.
func Reconnecting() *wait.Backoff {
	return &wait.Backoff{Duration: 200 * time.Millisecond, Cap: 2 * time.Second, Steps: 5, Factor: 2, Jitter: 1}
}

// Sleep waits for d; false when ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// SleepOrWake waits for d; it returns true at once when wake brings a value or is closed.
// After d, and when ctx ends first, it returns false: ask ctx.
func SleepOrWake(ctx context.Context, d time.Duration, wake <-chan struct{}) (woken bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-wake:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// Asked is how long the API server that answered err asked to wait; otherwise if it
// did not say.
func Asked(err error, otherwise time.Duration) time.Duration {
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	return otherwise
}
