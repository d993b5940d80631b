// Package cache gives a program of your own what it needs to work with sandboxes from
// Go: typed reads that informers answer, and tasks that wait until a sandbox is paused,
// resumed or ready, or a checkpoint is there.
//
//	mgr, err := cache.NewControllerManager(cfg, cache.ManagerOptions{})
//	…
//	c, err := cache.NewCache(mgr)
//	…
//	err = c.Run(ctx) // returns once the informers have everything
//	defer c.Stop(ctx)
//
// Sandlane's own processes do not use it. The controller reads through its manager's
// cache. Gateways have package gateway/index: records that are a fraction of the objects,
// and hooks. Nothing there waits for a condition: what pauses or resumes a sandbox asks its
// freezer and hears the answer (docs/design/pause.md). So of the conditions the index keeps
// the one bit that routes depend on, whether the sandbox is known to be awake, and calls a
// hook when it changes; a bit for Ready would have no reader. A live read of one sandbox is
// index.Live.
//
// Nothing here pauses or resumes, either: the caller writes, for one with package
// kubeclient/pausing, and waits here.
//
// A program needs the rights to list and watch the kinds that BuildCacheConfig names, and
// to get Sandboxes and Checkpoints.
//
// # Reads
//
// Each read is answered by an informer, never by the API server, and what it returns is
// the caller's own copy. It may be behind: by the watch's delay, and by more while the
// watch is broken. An object that is there but of another namespace is not found, and no
// namespace at all is an error.
//
// # States of a Cache
//
//	new ─Run, or the program starts its manager─▶ running ─▶ stopped
//	 └────────────────────────Stop──────────────────────────────▲
//
// Only Run leads from new to running where the manager is owned (NewControllerManager
// made it): the Cache starts it and ends it. A foreign manager is started and ended by
// the program, and Run is an error. Running ends with Stop, with the context of Run, or
// with the manager, whatever ended it; the first of these is what ErrStopped is wrapped
// with. Stopped is final: reads, writes through GetClient, new tasks and those that wait
// fail with ErrStopped, for an informer that no longer hears anything would answer with
// what was true once.
//
// # States of a WaitTask, and of the hook that it holds
//
//	new (lazy) ─Wait─┐
//	                 ├─▶ waiting ─answer, timeout, context, Release─▶ over
//	acquired ───Wait─┘                                                 ▲
//	    └─────────────────Release, or its context ends─────────────────┘
//
// A hook is what the tasks of one action on one object share. It is there while a task
// holds it: from the constructor on for a pause or a resume (acquired), so that opposite
// writes of one process cannot cross, and from Wait on for the others (lazy). Its key has
// the object's UID: an object of the same name made later is another. WaitHooks.mu guards
// the table, each task's own mutex its state. A task of another action gets
// ErrWaitTaskConflict and holds nothing. What orders processes among each other is the
// test in each write, not this.
//
// # Why no wake-up is lost
//
// A waiting task takes the hook's channel, then looks, then waits for that channel, then
// begins anew. The informers' handlers close the channel after the informer's store has
// changed: a change before the look is seen by it, and a later one closes the channel that
// the task has in hand. Every ten seconds it reads the API server besides, for a watch that
// is cut off; nothing depends on that while the watch works.
//
// # When a step fails
//
//	the object is not in the informer   one read of the API server tells "not yet" from gone
//	that read fails                     the next poll repeats it; at the timeout it is told
//	the object is deleted or replaced   ErrGone, at once
//	it can never come to that           ErrFailed, at once, with the reason
//	the state comes and goes            it is waited on until it is seen
//	the Cache stops                     ErrStopped, at once
//	the program forgets Release         the end of the constructor's context releases
package cache
