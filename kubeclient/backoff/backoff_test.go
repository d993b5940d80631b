package backoff

import (
	"context"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sandlane/sandlane/test/bubble"
)

func TestDoubling(t *testing.T) {
	for _, tc := range []struct {
		first, most time.Duration
		want        []time.Duration
	}{
		{50, 1000, []time.Duration{50, 100, 200, 400, 800, 1000, 1000, 1000}},
		{100, 400, []time.Duration{100, 200, 400, 400}},
		{100, 50, []time.Duration{100, 50, 50}},
	} {
		var got []time.Duration
		for delays := Doubling(tc.first, tc.most); len(got) < len(tc.want); {
			got = append(got, delays.Step())
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("from %d to %d: %d, want %d", tc.first, tc.most, got, tc.want)
		}
	}
}

func TestSleep(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		began := time.Now()
		if !Sleep(t.Context(), time.Second) || time.Since(began) != time.Second {
			t.Errorf("woke after %v", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if Sleep(ctx, time.Minute) || time.Since(began) != 2*time.Second {
			t.Errorf("slept on after the context's end, until %v", time.Since(began))
		}
		if Sleep(ctx, 0) {
			t.Error("goes on after the context's end")
		}
	})
}

func TestNext(t *testing.T) {
	var got []time.Duration
	for last := time.Duration(0); len(got) < 6; got = append(got, last) {
		last = Next(last, 50, 300)
	}
	if want := []time.Duration{50, 100, 200, 300, 300, 300}; !slices.Equal(got, want) {
		t.Errorf("%d, want %d", got, want)
	}
	if got := Next(0, 100, 50); got != 50 {
		t.Errorf("the first pause is %d, and 50 is the most", got)
	}
}

func TestSleepUntil(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		began, wake := time.Now(), make(chan struct{}, 1)
		if SleepOrWake(t.Context(), time.Second, wake) || time.Since(began) != time.Second {
			t.Errorf("not woken: slept for %v", time.Since(began))
		}
		time.AfterFunc(time.Second, func() { wake <- struct{}{} })
		if !SleepOrWake(t.Context(), time.Minute, wake) || time.Since(began) != 2*time.Second {
			t.Errorf("woken after %v", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if SleepOrWake(ctx, time.Minute, wake) || time.Since(began) != 3*time.Second {
			t.Errorf("slept on after the context's end, until %v", time.Since(began))
		}
	})
}

func TestAsked(t *testing.T) {
	if d := Asked(apierrors.NewTooManyRequests("busy", 3), time.Minute); d != 3*time.Second {
		t.Errorf("asked for 3s, waits %v", d)
	}
	if d := Asked(apierrors.NewTooManyRequests("busy", 0), time.Minute); d != time.Minute {
		t.Errorf("asked for nothing, waits %v", d)
	}
}
