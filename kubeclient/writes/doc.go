// Package writes makes the conditional writes of Sandlane: JSON Patches (RFC 6902) whose tests
// say what the writer believes of the object. Begin with For, add what must hold (Test) and what
// is written (Set, Remove), and send what Build returns with a client; Judge says what the API
// server's answer means. A Patch is a value of its own and not safe for concurrent use; a built
// one is.
//
// Two writes have a form of their own, which gateways, controller and CLI share:
//
//   - EndSandbox writes spec.end. It is not the release: reconcilers/sandbox alone carries an end
//     out (it stops the pod, waits for the fence, writes the record). An end is final: the CRD
//     refuses to change it, and the write tests that there is none yet, so of two ends at once
//     one wins and the other is told that all is well.
//   - PauseAs, Resume and their kin build the patches of spec.paused and of the fields that change
//     with it. They order no freezer: the sender of the patch does that (gateway/pause), or leaves
//     it to the controller.
package writes
