// Package fastpath is the gateway's side of the fast path: a table of routes in
// shared memory, from which a module inside Envoy (folder module, in C) answers
// requests that would hit the route cache, without asking this process.
//
// Open a Table, Settle it before the gateway's lease is written, make it the mirror of
// the routecache.Cache, and run its heartbeat (Start); package gateway does that. The table
// then holds some of the cache's routes. Requests that the module does not answer, because
// they are unusual or their route is not in the table, are left to ExtProc, so that without
// a table everything works, but slower.
//
// docs/design/fastpath.md says which routes are in the table, and which requests are
// answered; waitWorkers says why a fence holds. A goroutine that takes both takes the lock of
// a cache's shard before Table.mu; trust has a mutex of its own. No lock is held while this
// package waits for anything.
//
// This package relies on the contents of the files as little as it can: it keeps its own
// records of the entries, and reads back only counters, marks and the workers' seq.
//
// # States
//
// An entry is free, published, retired (retracted), and free again. Its bytes are
// written while it is free, the word that names it after them. It is free again after a wait
// for workers that began after its removal, once its mark is folded into the route's use:
// all under Table.mu, inside the shard's lock.
//
// A worker slot is even, or odd while a reading is on: from the second look at the table to
// the answer and the mark of its use. One thread of the Envoy that holds its byte of the
// control file writes it; each thread takes the next slot with its first request.
//
// Trust is a time on boot clock and wall clock, at most a second from the heartbeat, no later
// than the lease. A worker refuses a time more than a second ahead. The gateway writes it
// under the mutex under which it looks at the lease, for one Envoy, after that one's
// /server_info named a tested version. When the lease is lost the right to route ends first,
// then trust is set to 0 under that mutex, then workers are waited for.
//
// An Envoy is loaded, owner, attached. With its first request it locks its byte, makes odd
// slots even (their owner is dead), counts itself, and maps the head's generation. A second
// Envoy cannot lock and answers nothing.
//
// A gateway process is opened, settled, serving. It locks its byte, sets trust to 0, waits
// for workers, clears every word, and only then writes its lease; also with the fast path
// off, and with any layout.
//
// # Orders
//
//	fence, lost lease, join  routecache waits for ExtProc's handlers, then for workers
//	hold                     the claim is marked held; its route is taken out under the
//	                         shard's lock; workers are waited for; marks are folded; only
//	                         then use is read. A publish looks at the hold under that lock
//	use                      marks are folded at each heartbeat and before each report, into
//	                         the present time
//	eviction                 at most eight routes get a second chance for a mark since the
//	                         last one
//
// # When something fails
//
//	gateway killed, stopped or stuck        trust ends within a second; then ExtProc is
//	                                        asked
//	gateway cannot open or lock the files   fast path off; it waits a second, the longest
//	                                        trust, before it writes its lease
//	Envoy killed                            its lock is gone: its odd slots are over, and
//	                                        fences go on
//	Envoy stopped inside a reading          fences wait until it moves or dies
//	garbage in a worker's slot              where it looks like a reading, fences wait
//	                                        until Envoy restarts
//	more than 64 workers                    those above leave all to ExtProc
//	no tmpfs or room, another architecture  off, one log line
//	an untested Envoy                       the same
//	files that another user may write       the same; Envoy claims no control file of
//	                                        another user
//	another layout or size                  a new generation, eight at most in an Envoy's
//	                                        life; Envoy answers nothing until it has mapped
//	                                        it
//	files removed                           once one side restarts nothing is answered
//	                                        until both have
//	files filled with garbage               a checksum, a bound or the limit of trust
//	                                        fails: ExtProc
//	files truncated                         Envoy or the gateway may die; no wrong route
package fastpath
