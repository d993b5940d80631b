package limits

// Limits are those of one namespace at one gateway. The factors are how many times the
// places that are free it may have (see the package).
type Limits struct {
	// Waiting is the factor of requests with a valid key that wait, WaitingWithoutKey that of
	// the others.
	Waiting, WaitingWithoutKey int
	// WaitingForName is how many requests may wait for one sandbox; those of each
	// namespace, with a key and without, are counted apart.
	WaitingForName int
	// Open is the factor of open requests.
	Open int
	// OpenOfSandbox is how many requests one sandbox may have open; 0 is no limit.
	OpenOfSandbox int
	// Archives is the factor of archives that are taken at once.
	Archives int
	// Snapshots is how many snapshots the namespace keeps, SnapshotsOfKey how many of them
	// one API key has made; 0 is no limit.
	Snapshots, SnapshotsOfKey int
	// SnapshotBytes is the factor of bytes that the namespace keeps in the store when it makes
	// a snapshot, of those that are free for snapshots; SnapshotBytesOfKey that of one API key.
	// PauseBytes and PauseBytesOfKey are the factors, of all that are free, when a sandbox
	// hibernates.
	SnapshotBytes, SnapshotBytesOfKey, PauseBytes, PauseBytesOfKey int
}

// Options are what an operator sets.
type Options struct {
	// MaxStreams is how many requests Envoy takes at once. Required.
	MaxStreams int
	// OpenOfSandbox, Snapshots and SnapshotsOfKey are those of Limits.
	OpenOfSandbox, Snapshots, SnapshotsOfKey int
}

// The factors. With 8 of open requests a namespace that is alone gets eight ninths of what
// Envoy takes, which is all of MaxStreams (envoy.SandboxRequests).
const (
	factorWaiting           = 4
	factorWaitingWithoutKey = 1
	factorOpen              = 8
	factorArchives          = 4

	factorSnapshotBytes      = 2
	factorSnapshotBytesOfKey = 1
	factorPauseBytes         = 8
	factorPauseBytesOfKey    = 4
)

// waitingRoom is how many requests may wait in all. The rest of what Envoy may ask ExtProc at
// once is for hits.
func waitingRoom(maxStreams int) int { return max(1, maxStreams/2) }

// Reader returns the limits of namespaces. The zero value is not ready for use.
type Reader struct{ all Limits }

// NewReader returns a Reader that gives every namespace the same limits.
func NewReader(o Options) Reader {
	return Reader{Limits{
		Waiting: factorWaiting, WaitingWithoutKey: factorWaitingWithoutKey, WaitingForName: max(1, waitingRoom(o.MaxStreams)/4),
		Open: factorOpen, OpenOfSandbox: o.OpenOfSandbox, Archives: factorArchives, Snapshots: o.Snapshots, SnapshotsOfKey: o.SnapshotsOfKey,
		SnapshotBytes: factorSnapshotBytes, SnapshotBytesOfKey: factorSnapshotBytesOfKey, PauseBytes: factorPauseBytes, PauseBytesOfKey: factorPauseBytesOfKey,
	}}
}

// Of returns a namespace's limits. It takes no lock and allocates nothing.
func (r Reader) Of(string) Limits { return r.all }
