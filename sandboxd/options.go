package sandboxd

import (
	"crypto/ed25519"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sandlane/sandlane/sandboxd/access"
	"github.com/sandlane/sandlane/sandboxd/archive"
	"github.com/sandlane/sandlane/sandboxd/sudo"
)

// Version is the version of envd that sandboxd behaves like. SDKs decide by it which
// features they use.
const Version = "0.6.13"

// Options are the settings of one sandboxd.
type Options struct {
	// Address to listen on; empty means ":49983", where SDKs expect it.
	Address string
	// DefaultUser is the user of a request that names none, if /init set none. Empty means
	// the image's user, else "user" if that exists, else the user that sandboxd runs as.
	DefaultUser string
	// Workdir is the directory of commands and of relative paths if /init sets none; empty
	// means the home of their user.
	Workdir string
	// Home replaces the home of the user that sandboxd runs as, and makes that user the
	// default user. It is for a sandbox without a file system of its own, which would use
	// the home of the user that started it. Empty changes nothing.
	Home string
	// UserFiles is the directory of passwd and group; empty means /etc. For tests.
	UserFiles string
	// InitKey is the public key of gateways, which sign each /init for the pod with the
	// UID PodUID. With a nil key any client may call /init.
	InitKey ed25519.PublicKey
	PodUID  string
	// Open allows requests before /init. For tests and debugging.
	Open bool
	// SetClock lets /init set the clock of the machine.
	SetClock bool
	// Grace is how long processes have to end after SIGTERM; zero means 5 s.
	Grace time.Duration
	// Retention is how long the end of a process is kept; zero means 30 s.
	Retention time.Duration
	// Unread is how long a client may take no byte of a process's output while bytes wait for
	// it; zero means 30 s.
	Unread time.Duration
	// Relay makes servers that listen only on loopback reachable at the sandbox's own
	// addresses. It is only for a network that the sandbox has alone.
	Relay bool
	// RunDir is the folder of the files that name the sandbox; empty writes none.
	RunDir string
	// SudoSocket is the socket at which this process serves the command sudo, if it runs as
	// root. If it is empty, the command sudo does not work.
	SudoSocket string
	// FileServer is the program, this one, that does file calls as root (package rootfiles), if
	// this process is root and the default user may become root. If it is empty, file calls have
	// the rights of their user.
	FileServer string
	// Environ is the environment of the sandbox's image and pod; nil means that of
	// this process.
	Environ []string
	// Score is the file with this process's score for lack of memory, see
	// process.OpenScore; with nil, commands get the same score. Serve closes it.
	Score *os.File
	// Freezer stops and continues the sandbox's other processes; nil: the sandbox cannot be
	// frozen.
	Freezer Freezer
	// Layer says which of the sandbox's files a checkpoint keeps; nil: there can be none.
	Layer *archive.Tree
	// image is the folder with the image's files; empty is /. For tests.
	image string
	// clock is the machine's, watched since before Layer.Since was read from it. For tests.
	clock *wallClock
	// Command is the start command: a program with its arguments that sandboxd keeps running
	// beside itself, see start.go. Empty: none.
	Command []string
	// Log gets a line for each failure that fails no request; nil writes none.
	Log io.Writer
}

// Complete fills in the defaults.
func (o *Options) Complete() {
	if o.Address == "" {
		o.Address = ":49983"
	}
	if o.Grace == 0 {
		o.Grace = 5 * time.Second
	}
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	if o.clock == nil {
		o.clock = machineClock()
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
}

// The controller sets these in each pod that it makes: the public key of gateways, in
// base64, and the UID of the pod. Neither is a secret.
const (
	initKeyEnv = ownPrefix + "INIT_KEY"
	podUIDEnv  = ownPrefix + "POD_UID"
)

// layerEnv lists mounts in the container that belong to its own layer, separated by colons.
// A node sets it if the root of its containers is not a single mount.
const layerEnv = ownPrefix + "LAYER"

// belowReaperEnv is set in a sandboxd that another sandboxd, the first process of the
// container, has started.
const belowReaperEnv = ownPrefix + "BELOW_REAPER"

// fileRightsEnv set to userRights lets file calls have the rights of their user.
const (
	fileRightsEnv = ownPrefix + "FILE_RIGHTS"
	userRights    = "user"
)

// runDir is where E2B's programs look for the files that name their sandbox.
const runDir = "/run/e2b"

// fileClockLag is how far the times that the kernel gives files may be behind the clock,
// with the time that a thread may wait while it reads the clock.
const fileClockLag = 100 * time.Millisecond

// layer returns the files that belong only to this container, which is starting.
func layer(mounted string) *archive.Tree {
	t := &archive.Tree{
		Mounts: []archive.Mount{{Path: "/"}}, Since: time.Now().Add(-fileClockLag),
		Skip: []string{runDir, filepath.Dir(sudo.Socket)},
	}
	for _, path := range filepath.SplitList(mounted) {
		t.Mounts = append(t.Mounts, archive.Mount{Path: filepath.Clean(path)})
	}
	return t
}

var errHelp = flag.ErrHelp

// errand is what a command line asks for in place of a server.
type errand struct {
	version bool   // print it
	install string // the folder to copy the program to
	build   buildErrand
}

func parse(args []string, stderr io.Writer) (Options, errand, error) {
	var o Options
	var do errand
	flags := flag.NewFlagSet("sandboxd", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		_, _ = fmt.Fprintln(stderr, "usage: sandboxd [flags] [-- start-command arguments]")
		flags.PrintDefaults()
	}
	flags.StringVar(&o.Address, "address", "", "address to listen on (default \":49983\")")
	flags.StringVar(&o.DefaultUser, "default-user", "", "user of requests that name none (default $"+imageUser+", else \"user\" if there is one)")
	home := flags.String("home", "", "home of the own user, who becomes the default user")
	flags.BoolVar(&o.Open, "open", false, "answer requests before /init, without a token")
	flags.BoolVar(&o.SetClock, "set-clock", false, "let /init set the clock of the machine")
	flags.DurationVar(&o.Grace, "grace", 0, "time for processes to end at shutdown (default 5s)")
	flags.BoolVar(&o.Relay, "relay-loopback", true, "make servers that listen on 127.0.0.1 or ::1 alone reachable; never with --home")
	asRoot := flags.Bool("sudo", false, "serve the command sudo, by which root and the default user run commands as root, if sandboxd is root")
	flags.BoolVar(&do.version, "version", false, "print the version and exit")
	flags.StringVar(&do.install, "install", "", "copy sandboxd and its sudo into the folder bin below this one, for another container, and exit")
	do.build.flags(flags)
	if err := flags.Parse(args); err != nil {
		return o, do, err
	}
	o.Command = flags.Args()
	if len(o.Command) > 0 && !slices.Contains(args, "--") {
		return o, do, fmt.Errorf("unexpected argument %q: a start command stands behind --", flags.Arg(0))
	}
	if *asRoot {
		o.SudoSocket = sudo.Socket
	}
	if *home != "" {
		var err error
		if o.Home, err = filepath.Abs(*home); err != nil {
			return o, do, fmt.Errorf("--home %s: %w", *home, err)
		}
		o.Relay = false // the network belongs to the machine, and so do the servers on loopback
	} else {
		o.RunDir = runDir // the sandbox has a file system of its own
		// A container starts in the folder that its image or pod names, else in /.
		if dir, err := os.Getwd(); err == nil && dir != "/" {
			o.Workdir = dir
		}
		switch rights := os.Getenv(fileRightsEnv); rights {
		case "":
			o.FileServer = "/proc/self/exe"
		case userRights:
		default:
			return o, do, fmt.Errorf("%s: %q: it may be %s, or not set", fileRightsEnv, rights, userRights)
		}
	}
	if text := os.Getenv(initKeyEnv); text != "" {
		var err error
		if o.InitKey, err = access.ParseInitKey(text); err != nil {
			return o, do, fmt.Errorf("%s: %w", initKeyEnv, err)
		}
		if o.PodUID = os.Getenv(podUIDEnv); o.PodUID == "" {
			return o, do, fmt.Errorf("%s is set and %s, which goes with it, is not", initKeyEnv, podUIDEnv)
		}
	}
	return o, do, nil
}
