//go:build !failpoints

package failpoint

import "net/http"

// Watches returns nil in this build: a rest.Config that wraps its transport
// with it stays as it was.
func Watches(string) func(http.RoundTripper) http.RoundTripper { return nil }

// Requests returns nil in this build, like Watches.
func Requests(string) func(http.RoundTripper) http.RoundTripper { return nil }
