// Package pause pauses and resumes sandboxes for one gateway: it writes spec.paused and
// has the pod's freezer stop or continue what runs in it. Pauser does both, for the REST
// API and the first request; Awake is what activation asks before it routes to a sandbox
// that was ever paused; Quiesce repeats an order for the controller.
//
// It is not the freezer (sandboxd is), judges no caller, and writes no status
// (reconcilers/sandbox does). docs/design/pause.md has the states and what happens when a
// step fails.
package pause
