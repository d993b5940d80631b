// Package autoscaler sizes the member pools of SandboxEnvs by demand: it reads what is
// claimed, idle and waited for, decides, and writes members[].spec.replicas of the env,
// which package sandboxenv brings to the pool.
//
// # What is decided, and by which part
//
// A pool's replicas count unclaimed pods. The pool's own reconciler makes pods for
// claims that wait, whatever the replicas are; so replicas are the buffer alone, a pool
// with 0 of them serves from nothing, and no claim waits for a cooldown. Decide says how
// large the buffer is to be. It is pure: no clock, no input or output, and defined for
// every Snapshot.
//
// # The buffer
//
// D is the demand of a member: claimed pods and claims that wait. While its pool is in
// demand, which means that a claim waits or a create came within the quiet window, the
// buffer wanted is 1 (Conservative), a quarter of D (Default) or half of D (Aggressive),
// at least 1. Out of demand it is nothing.
//
//	decision     when
//	bounds       replicas lie outside the member's or the group's bounds: at once
//	up           the buffer wanted is larger than the replicas, outside the cooldowns
//	proactive    no pod has been idle for the idle threshold, and a create came after the
//	             last step up: twice the replicas, up to D+1, 3D/2+1 or 2D+2 pods in all
//	down         no claim waits in the group, all gateways have answered, some pods have
//	             been idle for longer than the idle timeout: 1, a quarter or half of the
//	             replicas, no more than those pods, and not below the buffer wanted
//
// A step up at most doubles the replicas. A member yields to one of its group with a
// smaller scaleUpPriority that wants to grow too and can.
//
// # Why it neither oscillates nor compounds
//
// A step down stops at the buffer at which a step up begins, by the same demand. A
// buffer depends on the demand alone, never on what was ordered before, but for the
// proactive step, which a create after the last step has to justify and whose sum is
// bounded by the demand.
//
// # Who may write what
//
//	env, members[].spec.replicas    this package, testing the value that it read; people, where autoscaling is off
//	pool, status.autoScaling        this package; times of the leading controller
//
// The bookkeeping is written first, so a controller that dies between the two waits a
// cooldown too many and never orders twice. If the env cannot be written, the bookkeeping
// says so: the attempt Failed, and the times of steps are what they were.
//
// The caches may be behind what was written. The value that a write replaces is tested,
// so a step is made once; and of each time the later counts, of what is read and of
// what this process wrote.
//
// A pool that the env did not make is left alone, also one that was there before and has
// been adopted: the env's replicas do not reach it.
package autoscaler
