// Package supervise starts the processes of `sandlane up`, waits until each
// serves, starts again what dies, and stops them in order. It knows nothing of
// what the processes are; package local says that in a Spec each.
//
// A process has one goroutine, which alone changes its state:
//
//	waiting ─After─▶ starting ─ready─▶ running ─exit─▶ waiting, for a pause first
//	                     │                └─Stop─▶ stopping ─exit─▶ stopped
//	                     └─exit or not ready in time, the first time─▶ stopped, Start fails
//
// A process that dies later is started again for ever, at first at once, then
// after pauses that double up to half a minute. One that was ready and ended
// with success meant to: its pause is the shortest. A successor starts only after
// its predecessor has been reaped, so that two never run under one name.
//
// No process outlives its supervisor: the kernel kills children with the
// thread that started them, so all are started by one goroutine that keeps its
// thread until Close (see spawner). Children have process groups of their own,
// which keeps a terminal's Ctrl-C from them: the supervisor stops them.
package supervise
