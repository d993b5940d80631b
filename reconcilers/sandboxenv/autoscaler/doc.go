// Package autoscaler sizes the member pools of SandboxEnvs by demand: it reads what is
// claimed, idle and waited for, decides, and writes members[].spec.replicas of the env,
// which package sandboxenv brings to the pool.
//
// A pool's replicas count unclaimed pods. The pool's own reconciler makes pods for
// claims that wait, whatever the replicas are; so replicas are the buffer alone, a pool
// with 0 of them serves from nothing, and no claim waits for a cooldown. Decide says how
// large the buffer is to be. It is pure: no clock, no input or output, and defined for
// every Snapshot.
//
// decide.go has the rules and why they neither oscillate nor compound, write.go what may
// write what.
package autoscaler
