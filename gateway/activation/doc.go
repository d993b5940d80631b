// Package activation gives a sandbox a running pod because a request asks for
// it: on first request, when the sandbox is made with its binding in one
// create, or when it exists and has no pod. Many requests for one ID lead to
// one claim, also over several gateways. New makes an [Activator], of which a gateway has
// one. Call Activate for a request whose sandbox has no running pod; it returns when there
// is one, or with an error of errors.go. Feed it with Settled what the watches show.
//
// It is not the authorisation (extproc does that before), not the scheduler
// (package schedule picks and claims pods), and it answers no request: it leaves a
// route in the cache, or just the facts in the API server, and its caller
// resolves again. The gateway's ExtProc server calls Activate, the index calls
// Settled.
//
// The states of an activation stand in activation.go, and what it ends with when a step
// fails in errors.go.
package activation
