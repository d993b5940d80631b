//go:build !failpoints

package failpoint

import "time"

// Hit does nothing in this build.
func Hit(string) {}

// Delay returns 0 in this build.
func Delay(string) time.Duration { return 0 }

// Env returns nothing in this build.
func Env(string) []string { return nil }
