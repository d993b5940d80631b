// Package activation gives a sandbox a running pod because a request needs one: a sandbox
// that does not exist yet is made and bound to a pod in one create, and one that exists
// without a pod is bound. A gateway makes one Activator with New. Call Activate for a
// request whose sandbox has no running pod; it returns when there is one, or with an error
// of errors.go. Call NoteChange when the watches show a change of a sandbox or its pod. Many
// requests for one ID lead to one claim, also over several gateways.
//
// This package authorises no request (extproc has done that before), picks no pod (package
// schedule picks and claims pods), and answers no request: it puts a route into the route
// cache, or changes only the objects in the API server, and its caller resolves the request
// again. The gateway's ExtProc server and its REST API call Activate; the index calls
// NoteChange.
//
// The comment of type activation has the states of an activation, and errors.go what each
// failure of a step leads to.
package activation
