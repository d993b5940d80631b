// Package backend is the backend of the REST API in a gateway: Backend does what
// the API asks of sandboxes, Templates shows pools as the API's templates, NodeSize
// knows what a sandbox without limits may use. Package restapi serves the API and
// calls it; package gateway makes it of the gateway's other parts.
//
// # Create
//
// A create is one activation of its own (activation.Make): the sandbox
// is made bound, its pod claimed, sandboxd initialised, then the caller is answered.
// These are the ends of a create that does not succeed:
//
//	no pod by the deadline, pool's      nothing made, or ended: ErrNoCapacity
//	queue full, gateway stops
//	the caller leaves                   its activation is ended, then as below
//	sandboxd refuses                    ended; the error says what it answered
//	sandboxd, or the API server, does   ended
//	not answer by the deadline
//	ended, but the write did not get    ErrOutcomeUnknown; tried for two minutes
//	through                             more, then left to its end time
//
// "Ended" holds for a create whose answer was lost as well: it is settled by a
// write, of spec.end or of an ended sandbox under that ID (see ensureEnded). If the gateway
// dies before, the controller ends the sandbox after its startup timeout, and does not
// delete it, so that a late claim cannot land.
package backend
