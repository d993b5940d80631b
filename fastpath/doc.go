// Package fastpath is the gateway's side of the fast path: a table of routes in
// shared memory, from which a module inside Envoy (folder module, in C) answers
// requests that would hit the route cache, without asking this process.
//
// A Table observes a routecache.Cache and holds some of its routes. Package gateway makes
// it, settles it before the lease is written, and runs its heartbeat. Without a table
// everything works, but slower. It decides nothing: unusual requests are left to ExtProc.
//
// docs/design/fastpath.md has the files, the states and what may change them, what may
// fail, and why a fence holds. In short: an entry is written only while it is free, and it
// becomes free only after a wait for Envoy's workers that began after it was taken out.
// Locks are taken in the order shard of the cache, Table.mu; trust has a mutex of its own.
// No lock is held while this package waits for anything.
//
// This package trusts the files as little as it can: it keeps its own map of entries, and
// reads back only counters, marks and the workers' flights.
package fastpath
