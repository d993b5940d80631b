package backend

import (
	"testing"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

func TestPossibleEnd(t *testing.T) {
	made := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for after, want := range map[time.Duration]bool{
		0: true, time.Hour: true, v1alpha1.MaxLifetime: true, v1alpha1.MaxLifetime + time.Second: true,
		v1alpha1.MaxLifetime + time.Hour: false, -time.Hour: false, 1<<63 - 1: false, -1 << 63: false,
	} {
		if got := possibleEnd(made, made.Add(after)); got != want {
			t.Errorf("an end %v after it was made: %v", after, got)
		}
	}
}
