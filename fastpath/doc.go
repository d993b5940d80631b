// Package fastpath is the gateway's side of the fast path: a table of routes in
// shared memory, from which a module inside Envoy (folder module, in C) answers
// requests that would hit the route cache, without asking this process.
//
// Open a Table, Settle it before the gateway's lease is written, make it the observer of
// the routecache.Cache, and run its heartbeat (Start); package gateway does that. The table
// then holds some of the cache's routes. Requests that the module does not answer, because
// they are unusual or their route is not in the table, are left to ExtProc, so that without
// a table everything works, but slower.
//
// docs/design/fastpath.md has the files, the states and what may change them, what may
// fail, and why a fence holds. In short: an entry is written only while it is free, and it
// becomes free only after a wait for Envoy's workers that began after it was taken out.
// A goroutine that takes both takes the lock of a cache's shard before Table.mu; trust has a
// mutex of its own. No lock is held while this package waits for anything.
//
// This package relies on the contents of the files as little as it can: it keeps its own
// records of the entries, and reads back only counters, marks and the workers' seq.
package fastpath
