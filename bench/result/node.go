package result

// Names of the rows that test/helm times on a real node, since bench has no node.
const (
	// NodeClaim is the time of a first request that a warm pod answers.
	NodeClaim = "node/claim/sandlane/latency"
	// NodeCreatedToIdle is from a pod's creation until it is stock.
	NodeCreatedToIdle = "node/created-idle/sandlane/time"
	// NodeEndedToIdle is from the end of a sandbox until its pool, which may have one
	// pod, has stock again.
	NodeEndedToIdle = "node/ended-idle/sandlane/time"
)
