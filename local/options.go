package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sandlane/sandlane/access"
	"github.com/sandlane/sandlane/local/helpers"
	"github.com/sandlane/sandlane/local/node"
)

// Where Sandlane's own objects live, and API keys.
const (
	SystemNamespace = access.DefaultSystemNamespace
	KeyNamespace    = access.DefaultKeyNamespace
)

// Values of Options.Isolation.
const (
	// IsolationAuto isolates fully where it can, else not, with a warning.
	IsolationAuto = "auto"
	// IsolationFull isolates or fails.
	IsolationFull = string(node.IsolationFull)
	// IsolationNone runs plain processes.
	IsolationNone = string(node.IsolationNone)
)

// DefaultPoolSize is the number of idle pods of the pool echo.
const DefaultPoolSize = 10

// DefaultBasePoolSize is the number of idle pods of the pool base.
const DefaultBasePoolSize = 3

// DefaultInterpreterPoolSize is the number of idle pods of the pool of the code interpreter.
const DefaultInterpreterPoolSize = 1

// maxGateways bounds Options.Gateways: more tell nothing new on one machine.
const maxGateways = 8

// Options of Up.
type Options struct {
	// StateDir is the state folder; default DefaultStateDir.
	StateDir string
	// Port is where clients connect on 127.0.0.1; 0 is any free one.
	Port int
	// Gateways is how many pairs of Envoy and gateway there are, 1 to 8. The
	// first listens on Port, the others on free ones.
	Gateways int
	// TLS makes the Envoys speak TLS and HTTP/2, with a certificate for Domain.
	TLS bool
	// Domain is what SDKs find api.<Domain> and <port>-<ID>.<Domain> below; with TLS
	// only. Default DefaultDomain.
	Domain string
	// PoolSize is the number of idle pods of the pool echo.
	PoolSize int
	// BasePoolSize is the number of idle pods of the pool base.
	BasePoolSize int
	// InterpreterPoolSize is the number of idle pods of the pool code-interpreter-v1; with 0
	// there is no such pool, and its packages are not installed.
	InterpreterPoolSize int
	// Egress runs an egress process, for pools with egress ByName; needs full isolation.
	Egress EgressOptions
	// IdleTimeout is that of sandboxes of the pool echo; 0 means never.
	IdleTimeout time.Duration
	// Isolation is auto, full or none; default auto.
	Isolation string
	// FastPath is auto or off; default auto. See docs/design/fastpath.md.
	FastPath string
	// TemplateBases are more images that templates may be built from, beside all of the
	// internet: those of registries at closed addresses, with their ports.
	TemplateBases []string
	// Test is for tests.
	Test TestOptions

	// Self is the sandlane binary, which the node, the controller and the
	// gateway are subcommands of; default this process's.
	Self string
	// NewAPIKey makes the API key that up.json shows.
	NewAPIKey func(ctx context.Context, config *rest.Config) (string, error)
	// Console serves the console until ctx ends and returns its address; nil for none.
	Console func(ctx context.Context, config *rest.Config) (url string, err error)
	// Helpers puts the node's programs and those of its images into a folder;
	// default helpers.Extract.
	Helpers func(dir string) error
	// Progress is called with one line for each step; nil: not called.
	Progress func(line string)
	// Ready is called once with what was started; nil for none.
	Ready func(UpFile)
	// Log gets what happens to the processes; default slog.Default().
	Log *slog.Logger
}

// EgressOptions are those of the egress process, as `sandlane egress` has them.
type EgressOptions struct {
	// Run is whether there is one.
	Run bool
	// Open are hosts that sandboxes may reach at closed addresses, each with its block.
	Open []string
	// Resolver is the name server that it asks; empty: this machine's.
	Resolver string
	// RootsFile has the authorities of upstreams of hosts with rules; empty: this machine's.
	RootsFile string
}

// TestOptions change what users have no reason to: tests shorten times, and make
// rare things happen often.
type TestOptions struct {
	// ReuseAddresses gives a new pod the address that was freed last.
	ReuseAddresses bool
	// LeaseDuration and LeaseRenewEvery are those of the gateways' leases; both
	// or none. The controller's grace, which covers clocks that run at different
	// speeds, is half of such a lease: here there is one clock.
	LeaseDuration, LeaseRenewEvery time.Duration
	// AddressCooldown is how long an address stays unused after its fence; 0 is the
	// controller's own.
	AddressCooldown time.Duration
	// DrainGrace is how long a gateway that is told to stop waits for what is
	// open; 0 is the gateway's own.
	DrainGrace time.Duration
	// Audit has the API server note each request of the gateways and the
	// controller.
	Audit bool
}

// Complete sets the defaults; it does not touch Port, the pools' sizes and
// IdleTimeout, whose zero values mean something.
func (o *Options) Complete() error {
	if o.StateDir == "" {
		dir, err := DefaultStateDir()
		if err != nil {
			return err
		}
		o.StateDir = dir
	}
	abs, err := filepath.Abs(o.StateDir)
	if err != nil {
		return fmt.Errorf("state folder %s: %w", o.StateDir, err)
	}
	o.StateDir = abs
	if o.Egress.RootsFile != "" {
		if o.Egress.RootsFile, err = filepath.Abs(o.Egress.RootsFile); err != nil {
			return fmt.Errorf("--egress-ca: %w", err)
		}
	}
	if o.TLS && o.Domain == "" {
		o.Domain = DefaultDomain
	}
	if o.Isolation == "" {
		o.Isolation = IsolationAuto
	}
	if o.FastPath == "" {
		o.FastPath = FastPathAuto
	}
	if o.Self == "" {
		if o.Self, err = os.Executable(); err != nil {
			return fmt.Errorf("find the running binary: %w", err)
		}
	}
	if o.Helpers == nil {
		o.Helpers = helpers.Extract
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Ready == nil {
		o.Ready = func(UpFile) {}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return nil
}

// callOneAtATime lets Progress and Ready be called by several goroutines: what installs beside
// the start reports too.
func (o *Options) callOneAtATime() {
	var mu sync.Mutex
	progress, ready := o.Progress, o.Ready
	o.Progress = func(line string) {
		mu.Lock()
		defer mu.Unlock()
		progress(line)
	}
	o.Ready = func(file UpFile) {
		mu.Lock()
		defer mu.Unlock()
		ready(file)
	}
}

// Validate reports what cannot work whatever the machine.
func (o *Options) Validate() error {
	switch {
	case o.Port < 0 || o.Port > 65535:
		return fmt.Errorf("--port %d: must lie between 1 and 65535, or be 0 for any free port", o.Port)
	case o.PoolSize < 0 || o.PoolSize > 500:
		return fmt.Errorf("--pool-size %d: must lie between 0 and 500", o.PoolSize)
	case o.BasePoolSize < 0 || o.BasePoolSize > 100:
		return fmt.Errorf("--base-pool-size %d: must lie between 0 and 100", o.BasePoolSize)
	case o.InterpreterPoolSize < 0 || o.InterpreterPoolSize > 100:
		return fmt.Errorf("--interpreter-pool-size %d: must lie between 0 and 100", o.InterpreterPoolSize)
	case o.IdleTimeout < 0:
		return fmt.Errorf("--idle-timeout %s: must not be negative (0 means never)", o.IdleTimeout)
	case o.Isolation != IsolationAuto && o.Isolation != IsolationFull && o.Isolation != IsolationNone:
		return fmt.Errorf("--isolation %q: must be auto, full or none", o.Isolation)
	case o.FastPath != FastPathAuto && o.FastPath != FastPathOff:
		return fmt.Errorf("--fast-path %q: must be auto or off", o.FastPath)
	case o.Egress.Run && o.Isolation == IsolationNone:
		return errors.New("--egress: needs sandboxes that are kept apart (--isolation full), by whose addresses it knows them")
	case o.Gateways < 1 || o.Gateways > maxGateways:
		return fmt.Errorf("--gateways %d: must lie between 1 and %d", o.Gateways, maxGateways)
	case o.Test.LeaseDuration < 0 || o.Test.LeaseRenewEvery < 0 || (o.Test.LeaseDuration == 0) != (o.Test.LeaseRenewEvery == 0):
		return errors.New("--lease-duration and --lease-renew-every: set both, to more than 0")
	case o.Test.LeaseDuration < 2*o.Test.LeaseRenewEvery:
		return fmt.Errorf("--lease-duration %s: must be at least twice --lease-renew-every", o.Test.LeaseDuration)
	case o.Test.AddressCooldown < 0:
		return fmt.Errorf("--address-cooldown %s: must not be negative", o.Test.AddressCooldown)
	case o.Test.DrainGrace < 0:
		return fmt.Errorf("--drain-grace %s: must not be negative", o.Test.DrainGrace)
	case o.NewAPIKey == nil:
		return errors.New("local.Options: NewAPIKey is required")
	}
	return o.validateTLS()
}

// DefaultStateDir is sandlane in $XDG_STATE_HOME, or in ~/.local/state.
func DefaultStateDir() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "sandlane"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no state folder (set $HOME, or name one with --state): %w", err)
	}
	return filepath.Join(home, ".local", "state", "sandlane"), nil
}
