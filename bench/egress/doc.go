// Package egress measures HTTPS requests of sandboxes by the egress process, in turns with
// the same requests without it. bench runs it.
//
//	direct       to the host, without anything between
//	connect      by a proxy that serves CONNECT and nothing else, the least that one can do
//	passed       by egress, to a host without a rule
//	intercepted  by egress, to a host whose rule puts in a secret
//
// One request runs at a time, so that p50 is a latency and not a queue: on a kept connection,
// or on a new one each. The egress process is package egress/proxy with its records and
// metrics, told of 1,000 sandboxes with ten rules each; no API server is behind it, since a
// connection asks none. Names resolve at once: what is measured comes on top of resolution.
// Client, host, both proxies and their TLS share the machine's cores.
//
// vs-allowed is a p50 beside what it may be: for passed requests 1.5 × direct's and 0.3 ms,
// for intercepted ones 1 ms more than that.
package egress
