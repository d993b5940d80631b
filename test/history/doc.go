// Package history records which pod was bound to which sandbox, and when, and
// judges answers by it: an answer is wrong if its pod was not bound to the
// sandbox that was asked for at any moment between the request and the answer.
//
// A Recorder learns from watches of Sandboxes and pool pods. A pod counts as
// bound from the first event that shows it so — when exactly does not matter,
// for a pod serves one sandbox in its life — until status.fencedAt of the
// Sandbox, when every gateway has said that it knows, or until the Sandbox is
// gone, whichever is first. Answers are therefore judged after the load, when
// the watches have caught up.
//
// A pod that a Sandbox gave up, because it hibernates, counts as bound until its own
// claim was fenced: until status.fencedAt if that is of its claim, else until the pod was
// let go.
//
// A watch that breaks with the API server is begun again by a list. Of what came
// and went in between the record knows only what the objects still say: a Sandbox
// that is gone counts as bound until the list, and for the question whether its
// address was given on too early, only until the last event before. Whatever
// stands in for a pod that answered stays: an ended Sandbox names its claim.
//
// It is called by test/chaos. It is no part of the product and reads nothing
// but the API. Safe for concurrent use.
package history
