package sandboxd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/freeze"
	"github.com/sandlane/sandlane/sandboxd/process"
	"github.com/sandlane/sandlane/sandboxd/reap"
)

// Run runs sandboxd with the arguments of a command line, without its name, and returns the
// exit code. As the first process of a container it becomes a reaper (package reap), which
// runs sandboxd as its child.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	options, do, err := parse(args, stderr)
	switch {
	case errors.Is(err, errHelp):
		return 0
	case err != nil:
		_, _ = fmt.Fprintln(stderr, "sandboxd:", err)
		return 2
	case do.version:
		_, _ = fmt.Fprintln(stdout, Version)
		return 0
	case do.build.asked():
		if err := do.build.run(); err != nil {
			_, _ = fmt.Fprintln(stderr, "sandboxd:", err)
			return 1
		}
		return 0
	case do.install != "":
		if err := install("/proc/self/exe", do.install); err != nil {
			_, _ = fmt.Fprintf(stderr, "sandboxd: copying sandboxd to %s: %v\n", do.install, err)
			return 1
		}
		return 0
	}
	// Before PR_SET_DUMPABLE below, which makes root the owner of the file; this process may
	// run as another user.
	if options.Score, err = process.OpenScore(); err != nil {
		_, _ = fmt.Fprintln(stderr, "sandboxd:", err)
	}
	// This process's memory has the token. If sandboxd does not run as root, the commands in
	// the sandbox run as the same user, and must not read the token there.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		_, _ = fmt.Fprintln(stderr, "sandboxd: hiding the memory:", err)
		return 1
	}
	if os.Getpid() == 1 {
		_ = os.Setenv(belowReaperEnv, "1")
		code, err := reap.Run("/proc/self/exe", os.Args)
		if err != nil {
			_, _ = fmt.Fprintln(stderr, "sandboxd:", err)
		}
		return code
	}
	// Only below the reaper do all other processes of the PID namespace belong to the sandbox.
	if os.Getppid() == 1 && os.Getenv(belowReaperEnv) != "" && options.Home == "" {
		options.Freezer = freeze.New()
		options.clock = machineClock() // before the layer's time is read from it
		options.Layer = layer(os.Getenv(layerEnv))
	}
	if err := serve(ctx, options, stderr); err != nil {
		_, _ = fmt.Fprintln(stderr, "sandboxd:", err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, options Options, stderr io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	options.Log = stderr
	options.Complete()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", options.Address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	_, _ = fmt.Fprintf(stderr, "sandboxd %s listens on %s\n", Version, listener.Addr())
	if options.InitKey == nil {
		_, _ = fmt.Fprintf(stderr, "sandboxd: warning: there is no public key in %s, so the first client to reach this port can take the sandbox over; the controller sets it in pods of pools\n", initKeyEnv)
	}
	return New(options).Serve(ctx, listener)
}
