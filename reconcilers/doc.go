// Package reconcilers puts the controller's parts together: the life of pool
// pods, the life of sandboxes, and idle release. It holds no logic of its own;
// `sandlane controller` calls Setup, and so do the tests that let the parts play
// together against a real API server.
//
// # Which part writes what
//
//	object, field                 writer
//	pod, phase warming            sandboxpool, at its creation
//	pod, → idle, with /address    sandboxpool
//	pod, idle → starting/running  gateways (the claim); sandbox for a binding whose owner died
//	pod, starting → running       sandboxpool
//	pod, → failed                 sandboxpool
//	pod, stopping → warming       sandboxpool, with all labels and annotations
//	pod, scale-down mark          sandboxpool, while idle
//	pod, → stopping               sandbox; gateways for a claim that is unsettled, too late, or on an unroutable pod
//	pod, delete                   sandboxpool
//	pod, finalizer                sandboxpool; sandbox removes it in the write → stopping
//	Sandbox, spec.binding         gateways; sandbox removes one whose claim cannot get onto its pod
//	Sandbox, paused and restore   gateways, sandbox, sandboxpool, idletimeout, console (package writes); users
//	Sandbox, spec.end             anyone, once (package writes)
//	Sandbox, status               sandbox, but for lastActive: idletimeout
//	Sandbox, finalizer and TTL    sandbox
//	SandboxPool, status           sandboxpool, but for autoScaling: autoscaler
//	SandboxPool of an env         sandboxenv: all but the status
//	SandboxEnv, status            sandboxenv
//	SandboxEnv, members' replicas autoscaler, where it is enabled
//
// Every write is conditional on what the writer saw, except those of a SandboxPool's
// status and of lastActive: each of these fields has one writer. The reconcilers share
// one thing in memory, the ledger of package address. Each part says beside its code what
// happens when a step fails: the next reconcile, by whatever process, finds a state that
// shows which step is to be done.
package reconcilers
