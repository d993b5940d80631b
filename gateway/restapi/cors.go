package restapi

import "net/http"

// allowOrigins lets the SDKs run in browsers. Any origin will do: what is asked
// for is a key in a header, never a cookie.
func allowOrigins(h http.Header) {
	h["Access-Control-Allow-Origin"] = corsOrigin
	h["Access-Control-Allow-Methods"] = corsMethods
	h["Access-Control-Allow-Headers"] = corsHeaders
	h["Access-Control-Expose-Headers"] = corsExposed
	h["Access-Control-Max-Age"] = corsMaxAge
}

// They are shared by all requests and never written to.
var (
	corsOrigin  = []string{"*"}
	corsMethods = []string{"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"}
	corsHeaders = []string{"Origin, Content-Length, Content-Type, User-Agent, Authorization, X-API-KEY, X-Team-ID, " +
		"Idempotency-Key, browser, lang, lang_version, machine, os, package_version, processor, publisher, release, " +
		"sdk_runtime, system"}
	corsExposed = []string{"X-Next-Token, X-Total-Running, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, " +
		"Retry-After, Should-Retry"}
	corsMaxAge = []string{"7200"}
)
