package restapi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/routing"
)

// Errors of a [Sandboxes] that refuses. Any other is a failure of ours.
var (
	// ErrNotFound: there is no such sandbox in the caller's namespace, or it has
	// ended.
	ErrNotFound = errors.New("no such sandbox")
	// ErrPaused: the sandbox is paused, and has no end to move. To clients it is as one
	// that is not there.
	ErrPaused = fmt.Errorf("%w that runs: it is paused", ErrNotFound)
	// ErrPausing: the sandbox is to hibernate, and its files are not kept yet. It is an
	// ErrPaused too.
	ErrPausing = fmt.Errorf("%w, or about to be", ErrPaused)
	// ErrResuming: the sandbox is resumed and does not run yet. It is an ErrPaused too.
	ErrResuming = fmt.Errorf("%w still, and is being resumed", ErrPaused)
	// ErrManyWait: too many requests of the team wait for pods at this gateway, or of all
	// teams. Nothing was made.
	ErrManyWait = errors.New("too many requests wait for a pod")
	// ErrNoCapacity: no pod became free before the deadline. Nothing was made.
	ErrNoCapacity = errors.New("the pool has no pod to spare")
	// ErrQuota: the namespace's or team's limit is reached. Nothing was made.
	ErrQuota = errors.New("the limit of sandboxes is reached")
	// ErrPausedLimit: as many sandboxes of the template are paused as may be.
	ErrPausedLimit = errors.New("the limit of paused sandboxes is reached")
	// ErrBusy: the gateway's reads are used up for the moment. Nothing was done.
	ErrBusy = errors.New("too much at once")
	// ErrInvalid: the API server, or the pool, cannot take what was asked for. An
	// InvalidError says why.
	ErrInvalid = errors.New("invalid sandbox")
	// ErrNotRunning: the sandbox does not run: it is paused already, starts, or is about
	// to end.
	ErrNotRunning = errors.New("the sandbox is not running")
	// ErrUnanswered: the sandbox does not answer, and nothing was changed.
	ErrUnanswered = errors.New("the sandbox does not answer")
	// ErrOutcomeUnknown: it cannot be said whether a sandbox was made; what may
	// have been made is being ended. The caller must not repeat by itself.
	ErrOutcomeUnknown = errors.New("the outcome is unknown")
)

// NewSandbox is what to create. Every field is validated by the caller.
type NewSandbox struct {
	// ID is of our generated form: "i" and 20 of [a-z0-9].
	ID        string
	Namespace string
	Team      string
	// KeyID is the ID of the API key that asks for it; empty if none is known.
	KeyID string
	// Snapshot is the ID of the snapshot, of Pool, whose files it begins with; empty: the
	// image's alone.
	Snapshot string
	// SandboxEnv is the env whose member gives the pod; empty: Pool does.
	SandboxEnv, Pool string
	// EndAt is when the sandbox ends whatever happens, to the second.
	EndAt    time.Time
	Metadata map[string]string
	// Env goes to sandboxd with the claim and is stored nowhere.
	Env map[string]string
	// Private asks for the traffic token on every port but sandboxd's.
	Private bool
	// Secure asks for the envd token on sandboxd's port.
	Secure bool
	// Egress must hold before anything runs in the sandbox.
	Egress Egress
	// AutoPause pauses it when it would end, and AutoResume lets requests resume it, for
	// Lifetime.
	AutoPause, AutoResume bool
	// AutoPauseFiles: that pause gives the memory up. AutoResumeFiles, with AutoResume:
	// requests resume it also if it has no memory.
	AutoPauseFiles, AutoResumeFiles bool
	Lifetime                        time.Duration
}

// Sandbox is one that runs, or is about to.
type Sandbox struct {
	ID string
	// UID tells apart the sandboxes that have this ID one after the other.
	UID                   types.UID
	Namespace, Team, Pool string
	// SandboxEnv is the env that it was made from; empty for one of a pool alone.
	SandboxEnv string
	// Snapshot is the ID of the snapshot that it began with; empty: none.
	Snapshot string
	// EndAt of a paused one is when it was paused.
	StartedAt, EndAt time.Time
	// ResumedAt is when it was last resumed, zero if it never was: its longest life
	// counts from then.
	ResumedAt time.Time
	Paused    bool
	// Frozen, of a paused one: it has its memory. Saved: its files and variables alone are
	// kept. Neither: its files are being saved.
	Frozen, Saved         bool
	AutoPause, AutoResume bool
	Metadata              map[string]string
	Private, Secure       bool
	// Rules are those of its Egress, with their values as they may be shown.
	Rules map[string]map[string]string
	// Keyed: its ports, sandboxd's apart, ask for an API key.
	Keyed bool
	// Internet: its create asked for all outgoing connections by name, as some SDKs do.
	Internet bool
	// PoolNames are the names that its pool allows a sandbox of a first request, which is denied
	// all else; nil: the pool says nothing.
	PoolNames *[]string
	// CPUCount, MemoryMB and DiskMB are the pod's limits, or the node's size
	// where it has none.
	CPUCount, MemoryMB, DiskMB int
}

// Listing is what a list of a namespace's sandboxes returned.
type Listing struct {
	// Sandboxes are not to be changed.
	Sandboxes []Sandbox
	// Version says how new the list is: a number, which grows with every change.
	// Empty where that is not known.
	Version string
	// Kept: sandboxes that were made a moment ago may not be in it.
	Kept bool
}

// Metric is one look at what a sandbox uses. CPU in percent of all its cores,
// the rest in bytes.
type Metric struct {
	At                          time.Time
	CPUCount                    int
	CPUUsedPercent              float64
	MemUsed, MemTotal, MemCache int64
	DiskUsed, DiskTotal         int64
}

// LogLine is a line that the sandbox's processes of its pod printed.
type LogLine struct {
	At   time.Time
	Text string
}

// Sandboxes makes and ends sandboxes. Safe for concurrent use. Each method but
// Create returns ErrNotFound for a sandbox of another namespace.
type Sandboxes interface {
	// Create makes a sandbox and returns when its sandboxd answers with the
	// token and the environment. It waits for a pod until ctx's deadline. On an
	// error nothing is left running, also when ctx was cancelled: what was made
	// is ended.
	Create(ctx context.Context, n NewSandbox) (Sandbox, error)
	// Get returns a sandbox that has not ended.
	Get(ctx context.Context, namespace, id string) (Sandbox, error)
	// List returns all sandboxes of a namespace that have not ended, the newest
	// first (see SortNewestFirst), as they are now. With the version of an earlier
	// Listing it may leave out what was made since that one: later pages of a list
	// need no more.
	List(ctx context.Context, namespace, atLeast string) (Listing, error)
	// End ends a sandbox: when it returns nil the end is written and this
	// gateway routes to it no more.
	End(ctx context.Context, namespace, id string) error
	// SetEnd moves the end of a sandbox, to an earlier time only if shorten.
	// It returns the sandbox with the end it has now, ErrPaused for a paused one,
	// ErrPausing for one whose files are being kept, and ErrResuming for one whose files
	// are being restored.
	SetEnd(ctx context.Context, namespace, id string, at time.Time, shorten bool) (Sandbox, error)
	// Pause stops all that runs in a sandbox, and returns when it is stopped, or, without
	// memory, when its files are kept and its pod is given up. Until it is resumed it has
	// no end, and no request reaches it. ErrPausedLimit, ErrNoStore: nothing was done.
	Pause(ctx context.Context, namespace, id string, memory bool) error
	// Resume continues a paused sandbox, to end a timeout from now. was is false if it
	// was not paused, and nothing was done. One that has no pod waits for one until ctx's
	// deadline; after an error it is paused as before.
	Resume(ctx context.Context, namespace, id string, timeout time.Duration) (sandbox Sandbox, was bool, err error)
	// SetEgress replaces the rules for outgoing connections. They hold, as far as
	// the cluster can hold them, when it returns nil.
	SetEgress(ctx context.Context, namespace, id string, e Egress) error
	// AskedEgress returns how the rules of a sandbox that Get returned were asked for last.
	AskedEgress(ctx context.Context, sandbox Sandbox) (AskedEgress, error)
	// Metrics returns a sandbox's use at the present moment, and with history before
	// it what is kept of its use, oldest first.
	Metrics(ctx context.Context, namespace, id string, history bool) ([]Metric, error)
	// Logs returns the last lines of a sandbox, oldest first, at most limit.
	Logs(ctx context.Context, namespace, id string, limit int) ([]LogLine, error)
}

// Template is a pool as a user of E2B sees it.
type Template struct {
	// ID is the name that a create gives, Aliases others for it.
	ID      string
	Aliases []string
	// SandboxEnv is the name of the SandboxEnv, Pool that of the SandboxPool where there
	// is none.
	SandboxEnv, Pool string
	// Adopted is the pool that the env was made for, whose sandboxes of before are of this
	// template too; empty if it was made for none.
	Adopted string
	// Build is the build that the name without a tag means, and OtherPools are those of the
	// template's other builds, whose sandboxes are of this template too; empty if it was not built
	// here.
	Build      string
	OtherPools []string
	CreatedAt  time.Time
	// MaxLifetime bounds how long after its start a sandbox may end.
	MaxLifetime time.Duration
	// ByName: its sandboxes may be allowed hosts by name, and their requests get headers.
	ByName bool
	// Pausable: sandboxes of it can be paused with their memory; Hibernates: without it.
	Pausable, Hibernates bool
	// AutoPause, AutoPauseFiles, AutoResume and AutoResumeFiles are those of a sandbox whose
	// create does not say.
	AutoPause, AutoPauseFiles, AutoResume, AutoResumeFiles bool
	CPUCount, MemoryMB, DiskMB                             int
}

// Templates finds envs and pools. Safe for concurrent use; answers from memory.
type Templates interface {
	// Template finds an env by name, else a pool by name or alias; the case of an alias
	// does not count.
	Template(namespace, name string) (Template, bool)
	// OfPool finds the pool of that name, also where an env has its name or has it as a
	// member: what it returns has no SandboxEnv. A pool that is being deleted it does not
	// find.
	OfPool(namespace, pool string) (Template, bool)
	// Templates lists the namespace's envs, and the pools that are no members of any.
	Templates(namespace string) []Template
}

// errKeysNotReady: the keys are not known yet; 503.
var errKeysNotReady = errors.New("the API keys are not known yet")

// Keys verifies API keys, in constant time and from memory.
type Keys interface {
	// Verify returns routing.ErrBadKey for a key that is not valid.
	Verify(ctx context.Context, key string) (routing.KeyOwner, error)
}

// Tokens derives the tokens of a sandbox.
type Tokens interface {
	Envd(id string, uid types.UID) string
	Traffic(id string, uid types.UID) string
}
