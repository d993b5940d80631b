// Package faults is an HTTP transport between a client and a real API server
// that makes the client's writes fail: before they reach the server, after it
// has applied them, or so that they arrive late, after the calls that follow
// them. Tests of the claim protocol put it under the client of a gateway and
// judge what the API server holds in the end.
//
// It is no server and knows no protocol beyond telling Sandlane's writes apart
// (see Kind); reads and other writes pass. It judges nothing: it keeps a Strike
// for each fault, which says what became of the write, and its user counts them.
//
// # What a client sees, and what the server gets
//
//	fault                 the client sees              the server gets
//	before: …             the error                    nothing
//	after: …              the error                    the write, at once
//	late: at the next     a timeout                    the write just before the next call about that object
//	late: after the next  a timeout                    the write once the next call about it was answered
//	late: after two       a timeout                    the write once the next two were answered
//	slow                  the answer, after Hold       the write, at once
//
// A fault with a Hold shows its error only after that time, as a real timeout
// does. A late write that nothing follows is sent after LateLimit. Flush sends
// what is still on its way; nothing is late after it.
//
// A plan decides on each write by what it is about and how many of its kind were
// sent before it, not by when it comes, so one seed meets a sandbox with the same
// faults in every run, as far as the client sends the same writes.
package faults
