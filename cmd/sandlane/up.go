package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/cmd/sandlane/cmdflags"
	"github.com/sandlane/sandlane/cmd/sandlane/daemon"
	"github.com/sandlane/sandlane/credentials"
	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/local"
)

// demoTeam owns the API key that `up` shows.
const demoTeam = "default"

func newUp() *cobra.Command {
	o := local.Options{NewAPIKey: demoKey}
	var detach bool
	cmd := &cobra.Command{
		Use: "up",
		Example: `  sandlane up
  sandlane up --gateways 2 --pool-size 10
  sandlane up --detach && sandlane status`,
		Short: "Run a whole cluster on this machine",
		Long: `Run a whole cluster on this machine: API server, etcd, a node that runs pods as
processes, Sandlane's controller and gateway, and Envoy. What is missing is
downloaded or built first, or taken from a bundle. Ctrl-C stops everything. Each run begins with an
empty cluster.

This is for development: it is no boundary against hostile code.`,
		Args: cobra.NoArgs,
	}
	state := cmdflags.State(cmd)
	takeBundle := bundleFlags(cmd)
	flags := cmd.Flags()
	flags.BoolVarP(&detach, "detach", "d", false, "return when everything is ready, and go on in the background")
	flags.IntVar(&o.Port, "port", envoy.DefaultPort, "port that clients connect to on 127.0.0.1; 0 is any free one")
	flags.IntVar(&o.Gateways, "gateways", 1, "pairs of Envoy and gateway; the first listens on --port, the others on free ports")
	flags.BoolVar(&o.TLS, "tls", false, "speak TLS and HTTP/2, with a certificate of an authority made for --domain and kept in the state folder")
	flags.StringVar(&o.Domain, "domain", "", "domain of api.<domain> and <port>-<ID>.<domain> with --tls (default "+local.DefaultDomain+")")
	flags.IntVar(&o.PoolSize, "pool-size", local.DefaultPoolSize, "idle pods that the pool echo keeps")
	flags.IntVar(&o.BasePoolSize, "base-pool-size", local.DefaultBasePoolSize, "idle pods that the pool base keeps, which E2B's SDKs get their sandboxes from")
	flags.IntVar(&o.InterpreterPoolSize, "interpreter-pool-size", local.DefaultInterpreterPoolSize, "idle pods that the pool code-interpreter-v1 keeps, which E2B's code interpreter SDKs get their sandboxes from; 0 leaves it out")
	flags.DurationVar(&o.IdleTimeout, "idle-timeout", 5*time.Minute, "release sandboxes of the pool echo after this long without use; 0 is never")
	flags.StringVar(&o.Isolation, "isolation", local.IsolationAuto, "keep sandboxes apart: auto, full (needs root) or none")
	flags.BoolVar(&o.Egress.Run, "egress", false, "run an egress process, by which sandboxes of the pool base reach hosts by name")
	flags.StringSliceVar(&o.Egress.Open, "egress-open", nil, "hosts that sandboxes may reach by --egress although their addresses are closed, each with its block: git.example.com=10.0.0.0/24")
	flags.StringVar(&o.Egress.Resolver, "egress-resolver", "", "name server that --egress asks, as address and port; this machine's if empty")
	flags.StringVar(&o.Egress.RootsFile, "egress-ca", "", "file with the authorities that hosts with rules are verified against; this machine's if empty")
	cmdflags.Files(cmd, "egress-ca")
	flags.StringVar(&o.FastPath, "fast-path", local.FastPathAuto, "let Envoy answer requests with known routes by itself: auto (where it can) or off")
	flags.StringSliceVar(&o.TemplateBases, "template-bases", nil, "images at addresses of this machine or of its private network that templates may be built from, with their registry's port, such as 127.0.0.1:5000/*")
	flags.BoolVar(&o.Test.ReuseAddresses, "reuse-addresses", false, "give a new pod the address that was freed last (for tests)")
	flags.DurationVar(&o.Test.LeaseDuration, "lease-duration", 0, "how long a gateway answers without a renewal (for tests)")
	flags.DurationVar(&o.Test.LeaseRenewEvery, "lease-renew-every", 0, "time between renewals (for tests)")
	flags.DurationVar(&o.Test.AddressCooldown, "address-cooldown", 0, "how long an ended sandbox's address stays unused (for tests)")
	flags.DurationVar(&o.Test.DrainGrace, "drain-grace", 0, "how long a stopped gateway waits for what is open (for tests)")
	flags.BoolVar(&o.Test.Audit, "audit", false, "note each request of gateways and controller in the API server's audit log (for tests)")
	for _, name := range []string{"audit", "reuse-addresses", "lease-duration", "lease-renew-every", "address-cooldown", "drain-grace"} {
		if err := flags.MarkHidden(name); err != nil {
			panic(err) // no such flag: a slip in this function
		}
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, err := state()
		if err != nil {
			return err
		}
		o.StateDir = dir
		if err := o.Complete(); err != nil {
			return err
		}
		if err := o.Validate(); err != nil {
			return err
		}
		if err := takeBundle(); err != nil {
			return err
		}
		if detach {
			return upDetached(cmd, &o)
		}
		return upHere(cmd, &o)
	}
	return cmd
}

// upHere runs until it is told to stop.
func upHere(cmd *cobra.Command, o *local.Options) error {
	// Ctrl-C also ends a program that reads the output, such as tee: what is said then must not
	// end this process before it has cleaned up. The channel is read by nobody. To ignore the
	// signal instead would have all children ignore it too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	report := local.NewReporter()
	o.Console = consoleOf(o.StateDir)
	o.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	daemon.LogWith(o.Log)
	o.Progress = func(line string) {
		fmt.Fprintln(cmd.ErrOrStderr(), line)
		report.Progress(line)
	}
	o.Ready = ready(cmd.OutOrStdout(), o.StateDir, report)
	err := local.Up(cmd.Context(), *o)
	if err != nil {
		report.Failed(err)
	}
	return err
}

// ready says that everything runs: to the user, or to the process that detached this one
// and shows the banner itself. What a detached one prints stays in its log, and the
// banner has the API key.
func ready(out io.Writer, stateDir string, report *local.Reporter) func(local.UpFile) {
	return func(up local.UpFile) {
		if report == nil {
			banner(out, stateDir, up, "Ctrl-C")
			return
		}
		fmt.Fprintln(out, "Sandlane is up.")
		report.Ready(up)
	}
}

// upDetached runs the same command in the background and waits until it is ready.
func upDetached(cmd *cobra.Command, o *local.Options) error {
	up, err := local.Detach(cmd.Context(), o.Self, o.StateDir, upArgs(o), func(line string) {
		fmt.Fprintln(cmd.ErrOrStderr(), line)
	})
	if err != nil {
		return err
	}
	banner(cmd.OutOrStdout(), o.StateDir, up, "")
	return nil
}

// upArgs are the flags of a command line that means the same as o.
func upArgs(o *local.Options) []string {
	args := []string{
		"--port", strconv.Itoa(o.Port), "--gateways", strconv.Itoa(o.Gateways), "--pool-size", strconv.Itoa(o.PoolSize),
		"--base-pool-size", strconv.Itoa(o.BasePoolSize), "--interpreter-pool-size", strconv.Itoa(o.InterpreterPoolSize), "--idle-timeout", o.IdleTimeout.String(), "--isolation", o.Isolation, "--fast-path", o.FastPath,
		"--reuse-addresses=" + strconv.FormatBool(o.Test.ReuseAddresses),
		"--lease-duration", o.Test.LeaseDuration.String(), "--lease-renew-every", o.Test.LeaseRenewEvery.String(),
		"--address-cooldown", o.Test.AddressCooldown.String(), "--drain-grace", o.Test.DrainGrace.String(), "--audit=" + strconv.FormatBool(o.Test.Audit),
	}
	if o.Egress.Run {
		args = append(args, "--egress", "--egress-open", strings.Join(o.Egress.Open, ","), "--egress-resolver", o.Egress.Resolver, "--egress-ca", o.Egress.RootsFile)
	}
	if len(o.TemplateBases) > 0 {
		args = append(args, "--template-bases", strings.Join(o.TemplateBases, ","))
	}
	if o.TLS {
		args = append(args, "--tls", "--domain", o.Domain)
	}
	return args
}

// demoKey makes the API key of the namespace default.
func demoKey(ctx context.Context, config *rest.Config) (string, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return "", fmt.Errorf("make an API key: %w", err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return "", fmt.Errorf("make an API key: %w", err)
	}
	key, _, err := credentials.NewStore(c, local.KeyNamespace).Create(ctx, demoTeam, corev1.NamespaceDefault)
	return key, err
}
