// Package dataplane measures requests through a real Envoy: plain, with a
// do-nothing ext_proc server, and with Sandlane. bench runs it.
//
// All three Envoys, the gateway, the API server, the sandboxes' server and the load
// generator run at once, and only the side whose turn it is gets requests. Cases:
//
//	hit          one sandbox, 32 connections, plain Envoy as well: the headline
//	one          one connection: latency without queues
//	open         fixed rate, half of what the do-nothing server reaches
//	fleet-N      requests to N sandboxes, in turns with requests to one of them
//	touch-N      the first request to each of N sandboxes, everything started anew
//	in-use-N     the gateway's poll of Envoy for open requests, over N addresses
//	misses       one request of a hundred misses the route cache and is resolved
//	             from the index
//
// A round in which a request fails is no measurement: the section ends with the
// error.
package dataplane
