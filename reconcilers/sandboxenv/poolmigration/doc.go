// Package poolmigration gives pools that were made without an env one of their name, so
// that users can ask for all capacity in one way. It is off unless the controller is
// asked for it (--adopt-pools). Set up a PoolAdoptionReconciler; reconcilers.Setup does.
//
// The pool stays the truth: the env's one member mirrors it, with autoscaling off, and
// nothing is ever written to the pool but one annotation. The env is owned by the
// pool, not the other way round: garbage collection and foreground deletion follow owner
// references of any kind, so an env that owned the pool would take it along when it is
// deleted, and the env did not make it.
//
//	state                                          step
//	no env of the name, and no annotation          makes the env, owned by the pool
//	the pool's env, and no annotation              notes the env's UID on the pool
//	the pool's env, noted                          mirrors what has changed in the pool
//	an env of that name that the pool does not own nothing
//	noted, and the env is gone                     nothing: a person has deleted it
//
// Each step is done again from the state that is found, so a controller that dies between
// two goes on where it was. Until the note is there the env's member is Inconsistent, as
// that of any foreign pool.
//
// A pool with a template of its own is not adopted, since members share a template by
// name; nor is one whose name cannot be a member's.
package poolmigration
