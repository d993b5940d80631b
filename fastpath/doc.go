// Package fastpath is the gateway's side of the fast path: a table of routes in
// shared memory, from which a module inside Envoy (folder module, in C) answers
// requests that would hit the route cache, without asking this process.
//
// The table observes a routecache.Cache and holds a part of it. Package gateway
// makes it, settles it before the lease is written, and runs its heartbeat; without
// it everything works, only slower. It decides nothing: what is unusual is ExtProc's.
//
// docs/design/fastpath.md has the files, the states, who may change them, what may
// fail, and why a fence holds. In short: an entry is written while it is free, and
// free only after a wait for Envoy's workers that began after it was taken out.
// Locks are taken in the order shard of the cache, Table.mu; trust has a mutex of
// its own. No lock is held while anything is waited for.
//
// Files are believed as little as possible: this side keeps its own map of entries,
// and reads back only counters, marks and the workers' flights.
package fastpath
