// Package cache lets a Go program of your own work with sandboxes: it has typed reads that
// informers answer, and tasks that wait until a sandbox is paused, resumed or ready, or
// until a checkpoint has succeeded.
//
//	mgr, err := cache.NewControllerManager(cfg, cache.ManagerOptions{})
//	…
//	c, err := cache.NewCache(mgr)
//	…
//	err = c.Run(ctx) // returns once the informers have listed all objects
//	defer c.Stop(ctx)
//
// This package pauses and resumes nothing: the program writes, for example with package
// kubeclient/writes, and waits with a task of this package. It needs the rights to list and
// watch the kinds that BuildCacheConfig names, and to get Sandboxes and Checkpoints.
//
// Sandlane's own processes do not use this package. The controller reads through its
// manager's cache. Gateways use package gateway/index, whose records are a fraction of the
// objects. They need no tasks: the gateway that pauses or resumes a sandbox orders its
// freezer and gets the answer (docs/design/pause.md).
//
// # Reads
//
// An informer answers each read, never the API server, and the result is the caller's own
// copy. It may be behind: by the watch's delay, and by more while the watch is broken. An
// object of another namespace is not found, and a read without a namespace is an error.
//
// # States of a Cache
//
//	new ─Run, or the program starts its manager─▶ running ─▶ stopped
//	 └────────────────────────Stop──────────────────────────────▲
//
// A manager that NewControllerManager made is owned: Run starts it, and the Cache ends it.
// Any other manager is foreign: the program starts and ends it, and Run returns an error.
// The state running ends with Stop, with the context of Run, or with the manager; the error
// that wraps ErrStopped names the first of these. Stopped is final: reads, writes through
// GetClient, new tasks and waiting tasks fail with ErrStopped, because informers that get no
// events any more would return outdated objects.
//
// # States of a WaitTask, and of the hook that it holds
//
//	new (lazy) ─Wait─┐
//	                 ├─▶ waiting ─answer, timeout, context, Release─▶ over
//	acquired ───Wait─┘                                                 ▲
//	    └─────────────────Release, or its context ends─────────────────┘
//
// The tasks of one action on one object share a hook. It exists while a task holds it. A
// task for a pause or a resume holds it from its constructor on (acquired), so that opposite
// writes of one process cannot cross; the other tasks hold it from Wait on (lazy). The
// hook's key has the object's UID, so that it does not stand for a later object of the same
// name. WaitHooks.mu guards the table of hooks, each task's own mutex its state. A task of
// another action gets ErrWaitTaskConflict and holds nothing. Hooks work within one process;
// between processes the tests in each write decide.
//
// # Why no change is missed
//
// A waiting task takes the hook's channel, then reads the object from the informer, then
// waits for that channel, and begins again. The informers' handlers close the channel after
// the informer's store has changed. So the task sees a change before its read by that read,
// and a later change closes the channel that the task waits for. Every ten seconds the task
// also reads from the API server, in case the watch is cut off; nothing depends on that
// while the watch works.
//
// # When a step fails
//
//	the object is not in the informer   one read of the API server tells "not yet" from "gone"
//	that read fails                     the next poll repeats it; the error at the timeout has it
//	the object is deleted or replaced   ErrGone, at once
//	the object cannot reach the state   ErrFailed, at once, with the reason
//	the state comes and goes unseen     the task waits until it sees the state
//	the Cache stops                     ErrStopped, at once
//	the program forgets Release         the end of the constructor's context releases the hook
package cache
