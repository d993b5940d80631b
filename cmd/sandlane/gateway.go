package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sandlane/sandlane/cmd/sandlane/cmdflags"
	"github.com/sandlane/sandlane/cmd/sandlane/daemon"
	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/extproc"
	"github.com/sandlane/sandlane/failpoint"
	"github.com/sandlane/sandlane/gateway"
	"github.com/sandlane/sandlane/kubeclient"
	"github.com/sandlane/sandlane/local"
	"github.com/sandlane/sandlane/routecache"
)

func newGateway() *cobra.Command {
	var o gateway.Options
	var kubeconfig, pool, fastPath string
	var heapGrowth uint64
	var logs daemon.LogOptions
	cmd := &cobra.Command{
		Use: "gateway",
		Example: `  sandlane gateway --name "$POD_NAME-$POD_UID" --pod-uid "$POD_UID" --run-dir /run/sandlane \
    --control-address "$POD_IP:7443" --first-request-pool default/echo`,
		Short: "Run a gateway: answer Envoy, claim pods, hold a lease",
		Long: `Run a gateway beside an Envoy that was configured by "sandlane envoy-config" with
the same --run-dir. It answers once it holds its lease and has listed the
cluster; /readyz on the metrics address says when.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	cmdflags.Kubeconfig(cmd, &kubeconfig)
	flags.StringVar(&o.Name, "name", "", "name of this gateway's lease: the pod's name and UID on a cluster")
	flags.StringVar(&o.PodUID, "pod-uid", "", "UID of the pod in the system namespace that this gateway and its Envoy run in, if any")
	flags.StringVar(&o.RunDir, "run-dir", "", "folder of the unix sockets, shared with Envoy")
	flags.StringVar(&o.ControlAddress, "control-address", "", "this pod's IP address and a port, where controllers reach this gateway over mutual TLS; empty is a unix socket in --run-dir")
	cmdflags.ControlTLS(cmd, &o.ControlTLS, controlplane.ControllerIdentity)
	flags.StringVar(&pool, "first-request-pool", "", "[namespace/]name of the pool for first requests that name none")
	flags.StringVar(&o.Domain, "domain", gateway.DefaultDomain, "domain, with its port, below which SDKs reach a sandbox as <port>-<ID>.<domain>")
	flags.StringVar(&o.MetricsAddress, "metrics-address", "", "where to serve /metrics, /metrics/envoy, /healthz and /readyz; empty or 0 is nowhere")
	flags.StringVar(&o.SystemNamespace, "system-namespace", gateway.DefaultSystemNamespace, "namespace of leases and of the gateways' own Secrets")
	flags.StringVar(&o.KeyNamespace, "key-namespace", gateway.DefaultKeyNamespace, "namespace of API keys")
	flags.StringSliceVar(&o.ClosedRanges, "closed-ranges", nil, closedRangesUsage)
	flags.DurationVar(&o.LeaseDuration, "lease-duration", controlplane.DefaultLeaseDuration, "how long the gateway goes on answering after the last renewal of its lease")
	flags.DurationVar(&o.RenewEvery, "lease-renew-every", controlplane.DefaultRenewEvery, "time between renewals")
	flags.IntVar(&o.CacheSize, "cache-size", routecache.DefaultSize, "routes kept in memory")
	flags.StringVar(&fastPath, "fast-path", local.FastPathOff, "let Envoy answer requests with known routes by itself, if it has the module: auto (experimental) or off")
	flags.StringVar(&o.FastPathFolder, "fast-path-folder", "", "folder on tmpfs of the table that Envoy answers from; with --fast-path=off one that a former process left there is closed")
	flags.DurationVar(&o.MaxWait, "max-wait", extproc.DefaultMaxWait, "how long a first request waits for a pod, at most 4m55s")
	flags.DurationVar(&o.DrainDelay, "drain-delay", gateway.DefaultDrainDelay, "how long to take new connections after SIGTERM, for load balancers to notice")
	flags.DurationVar(&o.DrainGrace, "drain-grace", gateway.DefaultDrainGrace, "how long open requests may take to end after SIGTERM; a second signal ends it")
	flags.DurationVar(&o.IdleTick, "idle-tick", gateway.DefaultIdleTick, "how often to ask Envoy what is open")
	flags.IntVar(&o.MaxStreams, "max-streams", envoy.DefaultMaxStreams, "requests that this gateway's Envoy takes at once: its --max-streams")
	flags.IntVar(&o.MaxOpen, "max-open-per-sandbox", gateway.DefaultMaxOpen, "requests that one sandbox may have open; 0 is no limit")
	flags.StringVar(&o.CheckpointDir, "checkpoint-dir", "", "folder of checkpoints' data, shared with the other gateways and the controller; without it there are no snapshots")
	flags.Int64Var(&o.MaxCheckpointBytes, "max-checkpoint-bytes", gateway.DefaultMaxCheckpointBytes, "the most that one checkpoint may have")
	flags.IntVar(&o.MaxSnapshots, "max-snapshots", gateway.DefaultMaxSnapshots, "snapshots that a namespace may keep; 0 is no limit")
	flags.IntVar(&o.MaxSnapshotsPerKey, "max-snapshots-per-key", gateway.DefaultMaxSnapshotsPerKey, "how many of a namespace's snapshots one API key may have made; 0 is no limit")
	flags.StringVar(&o.TemplateRegistry, "template-registry", "", "registry with a path for templates that the REST API builds, such as registry.example/templates; without it there are none")
	flags.StringSliceVar(&o.TemplateBases, "template-bases", nil, "images that templates may be built from, without tags; a last * stands for any text; none: no image")
	flags.StringVar(&o.TemplateCredentials, "template-credentials", "", "file with the logins of the template registry, in the form of Docker's config.json")
	flags.Uint64Var(&heapGrowth, "heap-growth", daemon.DefaultHeapGrowth, "least bytes to allocate between two garbage collections, limited to a quarter of $GOMEMLIMIT; with 0, or if $GOGC is set, Go decides")
	logs.Flags(flags)
	cmdflags.Required(cmd, "name", "run-dir")
	cmdflags.Files(cmd, "template-credentials")
	cmdflags.Folders(cmd, "run-dir", "fast-path-folder", "checkpoint-dir")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if o.FirstRequestPool, err = gateway.ParsePool(pool); err != nil {
			return fmt.Errorf("--first-request-pool: %w", err)
		}
		if o.FastPath, err = fastPathOn(fastPath); err != nil {
			return err
		}
		if o.Config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
			return fmt.Errorf("reach the API server: %w", err)
		}
		kubeclient.RetryUntilAPIServerReady(o.Config)
		o.MetricsAddress = daemon.MetricsAddress(o.MetricsAddress, "")
		o.Config.Wrap(failpoint.Watches("gateway/watch"))
		o.Config.Wrap(failpoint.Requests("gateway/requests"))
		if o.Log, err = logs.Open(cmd.ErrOrStderr()); err != nil {
			return err
		}
		o.ControlTLS.Log = o.Log
		o.BuildInfo, o.LogLevel = daemon.BuildInfo(ownVersion()), logs.LevelHandler()
		if o.DrainGrace <= 0 || o.DrainDelay > o.DrainGrace {
			return errors.New("--drain-grace must be more than 0 and no less than --drain-delay")
		}
		var stop func()
		o.ForceStop, stop = secondSignal()
		defer stop()
		daemon.ShareProcessors()
		defer daemon.GrowHeap(heapGrowth)()
		return gateway.Run(cmd.Context(), o)
	}
	return cmd
}

// fastPathOn reads a --fast-path.
func fastPathOn(value string) (bool, error) {
	switch value {
	case local.FastPathAuto:
		return true, nil
	case local.FastPathOff:
		return false, nil
	}
	return false, fmt.Errorf("--fast-path %q: must be auto or off", value)
}

// secondSignal returns a channel that is closed by the second signal to stop. A
// third ends the process at once.
func secondSignal() (<-chan struct{}, func()) {
	signals, second, quit := make(chan os.Signal, 2), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		defer signal.Stop(signals)
		for range 2 {
			select {
			case <-signals:
			case <-quit:
				return
			}
		}
		close(second)
	}()
	return second, sync.OnceFunc(func() { close(quit) })
}
