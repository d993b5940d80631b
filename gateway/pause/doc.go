// Package pause pauses and resumes sandboxes for one gateway: it writes spec.paused and
// orders the pod's freezer to stop or continue the sandbox's processes. The REST API calls
// Pauser.Pause and Pauser.Resume; a request for a paused sandbox calls Wake; activation
// calls EnsureAwake before it routes to a sandbox that was ever paused; Quiesce repeats an order
// for the controller.
//
// The freezer itself is sandboxd's. This package authorises no caller, and writes no status
// (reconcilers/sandbox does). docs/design/pause.md has the states and what happens when a
// step fails.
package pause
