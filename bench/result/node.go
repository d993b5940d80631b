package result

// Rows that test/helm times on a real node, where bench has none.
const (
	// NodeClaim is a first request until it is answered, by a warm pod.
	NodeClaim = "node/claim/sandlane/latency"
	// NodeCreatedToIdle is from a pod's creation until it is stock.
	NodeCreatedToIdle = "node/created-idle/sandlane/time"
	// NodeEndedToIdle is from the end of a sandbox until its pool, which may have one
	// pod, has stock again.
	NodeEndedToIdle = "node/ended-idle/sandlane/time"
)
