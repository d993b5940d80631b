// Package claims measures how fast sandboxes get pods, and how fast a route is
// gone once its sandbox has ended, on a real API server. bench runs it.
//
//	warm       one claim of the scheduler after the other, without a binding,
//	           beside the same JSON PATCH sent bare; in turns
//	burst-N    N of them at once, beside N bare PATCHes at once
//	first-N    N first requests at once through Envoy, to the first byte, over 1
//	           and 3 gateways; beside their two writes sent bare in their order:
//	           the Sandbox with its binding, then the pod's PATCH
//	create-N   N creates of the E2B API at once through Envoy, over 1 gateway, beside
//	           the same two writes; a create calls the pod's sandboxd besides
//	pause      a pause, a resume, and (wake) the first request for a paused sandbox,
//	resume     each beside one bare PATCH of a pod; over 1 gateway. All go to a
//	wake       sandboxd that stops nothing
//	release    the client itself writes spec.end; the time from when it sends that until
//	           none of 3 gateways routes to the sandbox, asked through their Envoys
//	           without a pause
//
// The bare writes beside gateways go to objects that no gateway watches: pods
// without a pool, and a copy of the Sandbox's definition. So gateways do no work for
// the floor, nor the API server for gateways.
//
// For bursts the rows cpu-… have the processor time of each program, which all share the
// processors, and the rows stolen the share that the hypervisor gave to others. Before each
// burst the API server collects its garbage, as Go's own benchmarks do. Each gateway is told
// its number among the gateways, as a controller does.
//
// Pods are idle pods in a pool that no controller looks after. First requests
// leave sandboxes behind; they end with the API server.
package claims
