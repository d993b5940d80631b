package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/checkpoint"
	"github.com/sandlane/sandlane/cmd/sandlane/cmdflags"
	"github.com/sandlane/sandlane/cmd/sandlane/daemon"
	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/credentials"
	"github.com/sandlane/sandlane/gateway"
	"github.com/sandlane/sandlane/kubeclient"
	"github.com/sandlane/sandlane/reconcilers"
	"github.com/sandlane/sandlane/reconcilers/address"
	"github.com/sandlane/sandlane/reconcilers/sandbox"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool/podtemplate"
)

// Leader election outlives short absences of the API server: controller-runtime's
// default gives up after 10 s and ends the process.
const (
	electionLease = 45 * time.Second
	electionRenew = 30 * time.Second
	electionRetry = 3 * time.Second
)

// syncTimeout is how long the controller waits for its first lists. They come once the API
// server is there. To exit sooner would only delay that, since the kubelet waits longer each
// time before it starts the process again.
const syncTimeout = 24 * time.Hour

// unstartedGrace is how long a manager that has started nothing may take to end.
const unstartedGrace = time.Second

// localClusterID is the cluster ID where there is one cluster.
const localClusterID = "local"

// controllerOptions are the flags of `sandlane controller`.
type controllerOptions struct {
	config          *rest.Config
	metricsAddress  string
	systemNamespace string
	leaderElect     bool
	recordTTL       time.Duration
	recordCap       int
	recordNameHold  time.Duration
	idleCheck       time.Duration
	addressCooldown time.Duration
	shortCooldown   bool
	unansweredPause time.Duration
	recycleAfter    time.Duration
	leaseGrace      time.Duration
	egressAddress   netip.Addr
	controlTLS      controlplane.TLSFiles
	clusterID       string
	adoptPools      bool
	checkpointDir   string
	sandboxdImage   string
	templates       string
	pullSecret      string
	log             *slog.Logger
	logLevel        http.Handler
}

func newController() *cobra.Command {
	var o controllerOptions
	var kubeconfig, egressAddress string
	var logs daemon.LogOptions
	cmd := &cobra.Command{
		Use:     "controller",
		Example: `  sandlane controller --metrics-address :9090`,
		Short:   "Run the controller: keep pools warm, end and record sandboxes",
		Args:    cobra.NoArgs,
	}
	flags := cmd.Flags()
	cmdflags.Kubeconfig(cmd, &kubeconfig)
	flags.StringVar(&o.metricsAddress, "metrics-address", "", "where to serve /metrics, /healthz and /readyz; empty or 0 is nowhere")
	flags.StringVar(&o.systemNamespace, "system-namespace", gateway.DefaultSystemNamespace, "namespace of leases")
	flags.BoolVar(&o.leaderElect, "leader-elect", true, "wait for the lease of the one controller that works; false only where there is never a second, not even during a rolling update")
	flags.DurationVar(&o.recordTTL, "record-ttl", sandboxpool.DefaultRecordTTL, "how long ended sandboxes are kept")
	flags.IntVar(&o.recordCap, "record-cap", sandboxpool.DefaultRecordCap, "how many ended sandboxes a namespace keeps, besides those that --record-name-hold keeps")
	flags.DurationVar(&o.recordNameHold, "record-name-hold", sandboxpool.DefaultNameHold, "how long an ended sandbox whose ID is not of the REST API's making is kept whatever the cap, so that no request makes it anew; at most --record-ttl")
	flags.DurationVar(&o.idleCheck, "idle-check-interval", time.Second, "time between two looks for idle sandboxes")
	flags.DurationVar(&o.addressCooldown, "address-cooldown", address.DefaultCooldown, "how long the address of an ended sandbox stays unused after every gateway knows of the end: with less an Envoy that stood still may send a request to the next sandbox; at least "+address.DefaultCooldown.String())
	flags.BoolVar(&o.shortCooldown, "short-address-cooldown", false, "accept a shorter --address-cooldown, with which an Envoy may send a request to the next sandbox (for tests)")
	if err := flags.MarkHidden("short-address-cooldown"); err != nil {
		panic(err) // no such flag: a slip in this function
	}
	flags.DurationVar(&o.unansweredPause, "unanswered-pause-for", sandbox.DefaultUnknownFor, "how long a sandbox that its timeout pauses may wait for an answer of its pod; then it ends, with its files")
	flags.DurationVar(&o.recycleAfter, "recycle-after", sandboxpool.DefaultRecycleAfter, "how long ago a sandbox must have started for an InPlace pool to use its pod again; 0s where kubelets restart changed containers without a pause")
	flags.DurationVar(&o.leaseGrace, "lease-grace", controlplane.DefaultLeaseGrace, "how long to go on waiting for a gateway that does not answer after its lease has ended")
	flags.StringVar(&egressAddress, "egress-address", "", "IPv4 address of egress processes, the name server of pods of pools with egress ByName; such pools get no pods without it")
	flags.StringVar(&o.clusterID, "cluster-id", localClusterID, "which entry of each SandboxEnv's spec.clusters is this cluster's")
	flags.BoolVar(&o.adoptPools, "adopt-pools", false, "make a SandboxEnv of the same name for each pool with a templateRef that has none")
	flags.StringVar(&o.checkpointDir, "checkpoint-dir", "", "folder of checkpoints' data, shared with the gateways; without it nothing deletes the data of Checkpoints that are deleted")
	flags.StringVar(&o.sandboxdImage, "sandboxd-image", "", "image whose entry point is sandboxd (sandlane-base), from which pods of templates with runtimes: [sandboxd] get it; without it such templates are refused")
	flags.StringVar(&o.templates, "template-registry", "", "the gateways' --template-registry, whose images alone become pools; without it TemplateBuilds are left alone")
	flags.StringVar(&o.pullSecret, "template-pull-secret", "", "name of the Secret, in each namespace, with which nodes pull what was built; empty: they have logins of their own")
	cmdflags.ControlTLS(cmd, &o.controlTLS, controlplane.GatewayIdentity)
	logs.Flags(flags)
	cmdflags.Folders(cmd, "checkpoint-dir")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if o.recordTTL <= 0 || o.recordCap <= 0 || o.recordNameHold <= 0 || o.idleCheck <= 0 || o.leaseGrace <= 0 {
			return errors.New("--record-ttl, --record-cap, --record-name-hold, --idle-check-interval and --lease-grace must be more than 0")
		}
		if o.addressCooldown < address.DefaultCooldown && !o.shortCooldown {
			return fmt.Errorf("--address-cooldown %s: must not be less than %s, or a late request may reach the next sandbox with the address", o.addressCooldown, address.DefaultCooldown)
		}
		if o.unansweredPause <= 0 {
			return errors.New("--unanswered-pause-for must be more than 0")
		}
		if o.recycleAfter < 0 {
			return errors.New("--recycle-after must not be less than 0")
		}
		if egressAddress != "" {
			if o.egressAddress, err = netip.ParseAddr(egressAddress); err != nil || !o.egressAddress.Is4() {
				return fmt.Errorf("--egress-address %q: must be an IPv4 address", egressAddress)
			}
		}
		if problems := validation.IsDNS1123Label(o.clusterID); len(problems) > 0 {
			return fmt.Errorf("--cluster-id %q: %s", o.clusterID, problems[0])
		}
		if o.config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
			return fmt.Errorf("reach the API server: %w", err)
		}
		kubeclient.RetryUntilAPIServerReady(o.config)
		if o.log, err = logs.Open(cmd.ErrOrStderr()); err != nil {
			return err
		}
		o.logLevel = logs.LevelHandler()
		return runController(cmd.Context(), o)
	}
	return cmd
}

func runController(ctx context.Context, o controllerOptions) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	cfg := rest.CopyConfig(o.config)
	cfg.UserAgent, cfg.QPS = "sandlane-controller", -1 // the API server has limits of its own
	probes := &daemon.Health{}
	lease, renew, retry := electionLease, electionRenew, electionRetry
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:         scheme,
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return kubeclient.RESTMapper(scheme), nil },
		NewCache:       patientCache,
		Controller:     config.Controller{CacheSyncTimeout: syncTimeout},
		Cache:          cache.Options{ByObject: reconcilers.CacheByObject()},
		Metrics: metricsserver.Options{
			BindAddress:   daemon.MetricsAddress(o.metricsAddress, "0"), // "" is a port there
			ExtraHandlers: probes.Handlers(o.logLevel),
		},
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              "sandlane-controller",
		LeaderElectionNamespace:       o.systemNamespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &lease,
		RenewDeadline:                 &renew,
		RetryPeriod:                   &retry,
	})
	if err != nil {
		return fmt.Errorf("make the controller: %w", err)
	}
	clientset, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make an API client: %w", err)
	}
	metrics.Registry.MustRegister(daemon.BuildInfo(ownVersion()))
	gatewayMetrics := controlplane.NewControllerMetrics(metrics.Registry)
	directory, err := controlplane.NewDirectory(controlplane.DirectoryOptions{
		Leases: clientset.CoordinationV1().Leases(o.systemNamespace), Pods: clientset.CoreV1().Pods(o.systemNamespace),
		Grace: o.leaseGrace, Metrics: gatewayMetrics, Log: o.log,
	})
	if err != nil {
		return err
	}
	tls, err := o.credentials(mgr)
	if err != nil {
		return err
	}
	gateways, err := controlplane.NewClient(controlplane.ClientOptions{
		Directory: directory, TLS: tls, Metrics: gatewayMetrics, Log: o.log,
	})
	if err != nil {
		return err
	}
	defer gateways.Close()
	egress, stopEgress, err := o.egress(mgr, clientset, tls)
	if err != nil {
		return err
	}
	defer stopEgress()
	live, err := client.New(cfg, client.Options{Scheme: scheme, Mapper: kubeclient.RESTMapper(scheme)})
	if err != nil {
		return fmt.Errorf("make an API client: %w", err)
	}
	err = errors.Join(mgr.Add(manager.RunnableFunc(directory.Start)), mgr.Add(probes), mgr.Add(&kubeclient.RewindGuard{
		Caches: mgr.GetCache(), Live: mgr.GetAPIReader(),
		Kinds: []kubeclient.Kind{
			{Object: &corev1.Pod{}, List: &corev1.PodList{}},
			{Object: &v1alpha1.Sandbox{}, List: &v1alpha1.SandboxList{}},
		},
		BeforeEnd: directory.WriteDown,
	}))
	if err != nil {
		return err
	}
	demands, woken := pollDemand(gateways)
	if err := mgr.Add(demands); err != nil {
		return err
	}
	var kept *checkpoint.Folder
	if o.checkpointDir != "" {
		if kept, err = checkpoint.OpenFolder(o.checkpointDir, math.MaxInt64); err != nil { // it puts nothing
			return fmt.Errorf("--checkpoint-dir: %w", err)
		}
		defer func() { _ = kept.Close() }()
	}
	err = reconcilers.Setup(mgr, reconcilers.Options{
		Checkpoints: kept,
		Fencer:      gateways, EgressFencer: egress, EgressAddress: o.egressAddress, LastActive: gateways, PauseEnforcer: gateways, Demand: demands, Sizing: demands, DemandChanged: woken,
		ApplyClaim: func(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) error {
			return applyClaim(ctx, live, s, pod)
		},
		InitKey: func(ctx context.Context) (podtemplate.InitKey, error) {
			key, err := credentials.ReadInitKey(ctx, live, o.systemNamespace)
			return podtemplate.InitKey(key), err
		},
		SandboxdImage:      o.sandboxdImage,
		TemplateRegistry:   o.templates,
		TemplatePullSecret: o.pullSecret,
		RecordTTL:          o.recordTTL,
		RecordCap:          o.recordCap,
		RecordNameHold:     o.recordNameHold,
		IdleCheckInterval:  o.idleCheck,
		AddressCooldown:    o.addressCooldown,
		UnansweredPauseFor: o.unansweredPause,
		RecycleAfter:       o.recycleAfter,
		ClusterID:          o.clusterID,
		AdoptPools:         o.adoptPools,
		Registerer:         metrics.Registry,
	})
	if err != nil {
		return fmt.Errorf("set up the reconcilers: %w", err)
	}
	return startManager(ctx, mgr)
}

// startManager runs the manager until ctx ends. One whose caches were never filled
// (the API server was away all the time) does not heed its context: it would turn
// in a loop for ever. Nothing of ours has been started then, so it is left.
func startManager(ctx context.Context, mgr manager.Manager) error {
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case <-mgr.Elected():
		return <-done
	case err := <-done:
		return err
	case <-time.After(unstartedGrace):
		return nil
	}
}

// patientCache is a cache that is up to date soon after the API server is back.
func patientCache(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
	o.HTTPClient = nil // the manager's does not wait
	return cache.New(kubeclient.Patient(cfg), o)
}

// applyClaim completes a claim whose gateway died between the binding and the
// pod's PATCH.
func applyClaim(ctx context.Context, live client.Client, s *v1alpha1.Sandbox, pod *corev1.Pod) error {
	claim, err := schedule.ClaimOf(s, pod)
	if err != nil {
		return err
	}
	_, err = schedule.ApplyClaim(ctx, live, claim)
	return err
}
