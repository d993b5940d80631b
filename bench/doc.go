// Command sandlane-bench measures what Sandlane promises (docs/design, chapter
// 7) against floors that it takes in the same run on the same machine.
//
//	sandlane-bench all      everything, under half an hour on two cores
//	sandlane-bench quick    the same with short rounds, two minutes: for a first look
//	sandlane-bench compare A.json B.json
//	sandlane-bench list     the sections
//	sandlane-bench render A.json    the pages made from a result
//
// It is not a test: nothing fails because a figure is bad, and no figure of one
// machine is compared with one of another. `make bench` calls it.
//
// # Floors
//
// Each figure of Sandlane stands beside that of something that does less, measured
// in turns with it:
//
//	dataplane  plain Envoy to a static cluster; and the same Envoy configuration
//	           as Sandlane's but for the socket, with a do-nothing ext_proc server
//	           (bench/floor: one file, grpc-go, one answer made before the first
//	           request and encoded for each, with the same metadata fields and
//	           window sizes) under the GOMAXPROCS and GOGC that suit it best here,
//	           which are tried first, in turns
//	socket     the same do-nothing server, spoken to without an Envoy; its settings
//	           are tried anew
//	routes     golang-lru, and a map under a mutex
//	claims     the same writes sent bare to the same API server, to objects that
//	           no gateway watches
//	idle       none: unit costs, that docs/scale.md is computed from
//	control    none: the reconcilers' own benchmarks and counts, for their budgets
//
// Sandlane is the real `sandlane gateway` with the flags that it ships with: its
// activity tracking, metrics, lease and watches are on. Its pods and sandboxes
// are objects in a real API server without a node; all addresses are served by
// one small server on the loopback interface.
//
// # Rows and samples
//
// A row is section/case/side/figure, such as dataplane/hit/sandlane/rps, and
// keeps every sample. One sample is one round. The rounds of both sides of a
// ratio alternate, and who begins alternates too, so that what else the machine
// does meets both; a ratio's samples are those of the pairs, never the ratio of
// two averages. What is shown is the median, with the interval that holds it with
// 95 % confidence and assumes no distribution (golang.org/x/perf/benchmath); it
// takes six samples to have one. A row with fewer has no interval, and compare
// gives no verdict on it.
//
// Requests/s are of a closed loop of connections (wrk, or the generator of
// package load if there is no wrk; the result says which). A closed loop leaves out
// the time that requests would have waited to be sent; wrk corrects its latencies
// for that by an estimate of its own, the generator does not. So rows named "open"
// come from a generator that sends at fixed times at a rate of its own and counts
// from when a request was due.
//
// Budgets (package report) are judged by the median. Where the interval has the
// budget inside, the run decides nothing, and the page says so; also of a budget
// that the median holds.
//
// # What is not claimed
//
// Client, Envoy, gateway, API server and upstream share the machine's cores and
// its loopback. Absolute figures therefore say little about a real cluster;
// ratios, CPU per request and allocations carry over better. etcd does not wait
// for its disk here, neither for Sandlane nor for the floor.
package main
