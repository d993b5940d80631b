// Package schedule claims warm pods: one PoolScheduler for each pool and
// gateway turns requests for a sandbox into pods that carry its claim, with one
// write a claim. A Set keeps the schedulers of all pools: feed it with Offer and
// Forget, run it, and Enqueue a ClaimRequest at the PoolScheduler that Get returns.
//
// The claim PATCH itself (Claim, ApplyClaim) is exported, for every process that
// has read a binding may send it: the owner of an activation, a follower, another
// gateway, the sandbox reconciler.
//
// It is not the index (which feeds it idle pods by Offer and Forget), does not
// write Sandboxes (callers do, in ClaimRequest.Bind and Unbind), and never
// lists pods. Package activation enqueues a gateway's requests. In the controller the
// sandbox reconciler sends claims by ApplyClaim, and the pool reconciler compares hashes
// of IDs (HashID).
//
// The states, and what happens when a step fails, stand beside the code that has them:
// a pod's record in stock.go, a request in entry.go, one claim's steps and all that can go
// wrong with them in attempt.go. Set.SetPickOffset says what several gateways know of each other.
package schedule
