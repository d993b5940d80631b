package result

// Names of the rows that test/helm times on a real node, since bench has no node.
const (
	// NodeClaim is the time of a first request that a warm pod answers.
	NodeClaim = "node/claim/sandlane/latency"
	// NodeCreatedToIdle is the time from a pod's creation until it is idle.
	NodeCreatedToIdle = "node/created-idle/sandlane/time"
	// NodeEndedToIdle is the time from the end of a sandbox until its pool, which may have
	// only one pod, has an idle pod again.
	NodeEndedToIdle = "node/ended-idle/sandlane/time"
)
