// Package cors lets pages of any origin call the REST API.
package cors

import "net/http"

// Allow sets the headers with which the SDKs run in browsers. Any origin will do: what is asked
// for is a key in a header, never a cookie.
func Allow(h http.Header) {
	h["Access-Control-Allow-Origin"] = origin
	h["Access-Control-Allow-Methods"] = methods
	h["Access-Control-Allow-Headers"] = headers
	h["Access-Control-Expose-Headers"] = exposed
	h["Access-Control-Max-Age"] = maxAge
}

// They are shared by all requests and never written to.
var (
	origin  = []string{"*"}
	methods = []string{"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"}
	headers = []string{"Origin, Content-Length, Content-Type, User-Agent, Authorization, X-API-KEY, X-Team-ID, " +
		"Idempotency-Key, browser, lang, lang_version, machine, os, package_version, processor, publisher, release, " +
		"sdk_runtime, system, X-Request-ID"}
	exposed = []string{"X-Next-Token, X-Total-Running, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, " +
		"Retry-After, Should-Retry, X-Request-ID"}
	maxAge = []string{"7200"}
)
