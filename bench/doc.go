// Command sandlane-bench measures the budgets of docs/design/design.md, chapter 7, against
// floors that it measures in the same run on the same machine.
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
// Each figure of Sandlane stands beside the figure of something that does less, measured in
// turns with it:
//
//	dataplane  plain Envoy to a static cluster; and the same Envoy configuration
//	           as Sandlane's but for the socket, with a do-nothing ext_proc server
//	           (bench/floor: one file, grpc-go, fields made before the first request
//	           and sent with each answer's time, the same metadata fields and
//	           window sizes) under the GOMAXPROCS and GOGC that suit it best here,
//	           which are tried first, in turns
//	fastpath   the same two beside Sandlane without its module and with it; for many
//	           sandboxes the same Envoy without ext_proc, which takes each address from
//	           the request's host
//	socket     the same do-nothing server, called without an Envoy; its settings
//	           are tried anew
//	routes     golang-lru, and a map under a mutex
//	claims     the same writes sent bare to the same API server, to objects that
//	           no gateway watches
//	egress     the same requests without anything between, and by a proxy that serves
//	           CONNECT and nothing else
//	idle       none: unit costs, from which docs/scale.md is computed
//	control    none: the reconcilers' own benchmarks and counts, for their budgets
//
// Sandlane is the real `sandlane gateway` with the flags that it ships with: its
// activity tracking, metrics, lease and watches are on. Its pods and sandboxes
// are objects in a real API server without a node; all addresses are served by
// one small server on the loopback interface.
//
// test/helm times what needs a kubelet, on a real node: with SANDLANE_NODE_RESULT, the name
// of a file, `make node-test` writes a result there, and render puts the last of
// bench/runs/*-node.json onto the page.
//
// Package result defines rows and samples and how they are judged. Client,
// Envoy, gateway, API server and upstream share the machine's cores and its loopback,
// and etcd does not wait for its disk: ratios, CPU per request and allocations carry
// over to a real cluster, absolute figures do not.
package main
