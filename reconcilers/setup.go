package reconcilers

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/checkpoint"
	"github.com/sandlane/sandlane/reconcilers/address"
	"github.com/sandlane/sandlane/reconcilers/builds"
	"github.com/sandlane/sandlane/reconcilers/checkpoints"
	"github.com/sandlane/sandlane/reconcilers/idletimeout"
	"github.com/sandlane/sandlane/reconcilers/sandbox"
	"github.com/sandlane/sandlane/reconcilers/sandboxenv"
	"github.com/sandlane/sandlane/reconcilers/sandboxenv/autoscaler"
	"github.com/sandlane/sandlane/reconcilers/sandboxenv/poolmigration"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool/podtemplate"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool/poststarthooks"
)

// Options of the controller's reconcilers. Only Fencer and ClusterID are needed; other
// zero values mean the defaults of the parts.
type Options struct {
	// Fencer reaches all gateways.
	Fencer sandbox.Fencer
	// EgressFencer reaches all egress processes, and EgressAddress is the address of pods'
	// name server in pools with egress ByName; such pools get no pods without it.
	EgressFencer  sandbox.Fencer
	EgressAddress netip.Addr
	// PauseEnforcer reaches the freezers of sandboxes' pods. Nil: none can be paused.
	PauseEnforcer sandbox.PauseEnforcer
	// LastActive tells what is in use. Nil: nothing is released for idleness.
	LastActive idletimeout.LastActiveSource
	// ApplyClaim: see sandbox.Reconciler.
	ApplyClaim func(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) error
	// RecordTTL is how long ended Sandboxes are kept, and RecordCap how many in a namespace.
	// RecordNameHold is how long those whose IDs the REST API did not generate are kept
	// whatever the cap. NoRecords keeps none.
	RecordTTL      time.Duration
	RecordCap      int
	RecordNameHold time.Duration
	NoRecords      bool
	// BindGrace and SweepInterval: see sandbox.Reconciler.
	BindGrace, SweepInterval time.Duration
	// UnansweredPauseFor: see UnknownFor of sandbox.Reconciler.
	UnansweredPauseFor time.Duration
	// IdleCheckInterval is the time between two looks for idle sandboxes.
	IdleCheckInterval time.Duration
	// DigestResolver, SandboxReadyHook, IdleNotifier and PluginManager: see
	// sandboxpool.SandboxPoolReconciler. Each may be nil.
	DigestResolver   sandboxpool.DigestResolver
	SandboxReadyHook sandboxpool.SandboxReadyHook
	IdleNotifier     sandboxpool.IdleNotifier
	PluginManager    sandboxpool.PluginManager
	// AddressCooldown is how long after its fence an address stays unused; 0 is
	// address.DefaultCooldown.
	AddressCooldown time.Duration
	// RecycleAfter: see sandboxpool.SandboxPoolReconciler.
	RecycleAfter time.Duration
	// Demand and DemandChanged: see sandboxpool.SandboxPoolReconciler.
	Demand        sandboxpool.Demand
	DemandChanged <-chan event.GenericEvent
	// InitKey: see sandboxpool.SandboxPoolReconciler.
	InitKey func(context.Context) (podtemplate.InitKey, error)
	// SandboxdImage: see sandboxpool.SandboxPoolReconciler.
	SandboxdImage string
	// TemplateRegistry is the registry of builds, TemplatePullSecret what nodes pull with: see
	// builds.Reconciler. Empty: TemplateBuilds are left alone.
	TemplateRegistry, TemplatePullSecret string
	// ClusterID is the entry of each env's spec.clusters that is this controller's.
	// Needed.
	ClusterID string
	// Sizing tells the autoscaler what Demand tells pools. Nil: no member of an env shrinks.
	Sizing autoscaler.Demand
	// AdoptPools makes an env for each pool that has none: see package poolmigration.
	AdoptPools bool
	// EnvRouterSync: see sandboxenv.SandboxEnvReconciler. It may be nil.
	EnvRouterSync sandboxenv.EnvRouterSync
	// Checkpoints is the folder of checkpoints' data. Nil: there is none. Checkpoints that are
	// deleted go then too, or their namespaces could not; the data of earlier ones stays until it
	// is swept by a controller that has the folder again.
	Checkpoints *checkpoint.Folder
	// Registerer takes the metrics; nil registers none.
	Registerer prometheus.Registerer
	// Controller has options for every controller that Setup registers. If its
	// MaxConcurrentReconciles is 0, each controller has its own default.
	Controller controller.Options
}

// CacheByObject limits a manager's cache to what the reconcilers read: of pods
// only those of pools, of envs all, and of builds neither logs nor steps.
func CacheByObject() map[client.Object]cache.ByObject {
	ours, err := labels.NewRequirement(v1alpha1.LabelPool, selection.Exists, nil)
	if err != nil {
		panic(err) // the label is a constant
	}
	return map[client.Object]cache.ByObject{
		&corev1.Pod{}:             {Label: labels.NewSelector().Add(*ours)},
		&v1alpha1.SandboxEnv{}:    {},
		&v1alpha1.TemplateBuild{}: {Transform: builds.Compact},
	}
}

// Setup registers all reconcilers with the manager. Call it once per manager,
// before the manager starts.
func Setup(mgr ctrl.Manager, o Options) error {
	ledger := address.NewLedger(nil, o.AddressCooldown)
	clientset, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("making an API client: %w", err)
	}
	poolMetrics := sandboxpool.NewMetrics(o.Registerer)
	pools := &sandboxpool.SandboxPoolReconciler{
		Client:   mgr.GetClient(),
		Scheme:   mgr.GetScheme(),
		Recorder: mgr.GetEventRecorder("sandboxpool"),
		Ledger:   ledger,

		Clientset:        clientset,
		HookRunner:       &poststarthooks.Cluster{Config: mgr.GetConfig(), Clientset: clientset},
		DigestResolver:   o.DigestResolver,
		SandboxReadyHook: o.SandboxReadyHook,
		IdleNotifier:     o.IdleNotifier,
		PluginManager:    o.PluginManager,
		RecycleAfter:     o.RecycleAfter,
		Demand:           o.Demand,
		DemandChanged:    o.DemandChanged,
		InitKey:          o.InitKey,
		SandboxdImage:    o.SandboxdImage,
		EgressAddress:    o.EgressAddress,

		Metrics: poolMetrics,
	}
	records := &sandboxpool.ObjectStore{Client: mgr.GetClient(), TTL: o.RecordTTL, Cap: o.RecordCap, NameHold: o.RecordNameHold}
	sandboxes := &sandbox.Reconciler{
		Client:        mgr.GetClient(),
		APIReader:     mgr.GetAPIReader(),
		Recorder:      mgr.GetEventRecorder("sandbox"),
		Fencer:        o.Fencer,
		Egress:        o.EgressFencer,
		Ledger:        ledger,
		ApplyClaim:    o.ApplyClaim,
		PauseEnforcer: o.PauseEnforcer,
		Hibernates:    o.Checkpoints != nil,
		BindGrace:     o.BindGrace,
		SweepInterval: o.SweepInterval,
		UnknownFor:    o.UnansweredPauseFor,
		Metrics:       sandbox.NewMetrics(o.Registerer, poolMetrics),
	}
	if !o.NoRecords {
		sandboxes.SandboxStore = records
		if err := records.SetupWithManager(mgr); err != nil {
			return err
		}
	}
	idle := idletimeout.NewIdleTimeoutReconciler(mgr.GetClient(),
		idletimeout.NewSandboxStore(mgr.GetClient()), o.IdleCheckInterval, o.LastActive)
	idle.APIReader, idle.Pauser, idle.Metrics = mgr.GetAPIReader(), sandboxes, idletimeout.NewMetrics(o.Registerer)
	envs := &sandboxenv.SandboxEnvReconciler{
		Client: mgr.GetClient(), Scheme: mgr.GetScheme(),
		LocalClusterID: o.ClusterID, PluginManager: o.PluginManager, EnvRouterSync: o.EnvRouterSync,
		Metrics: sandboxenv.NewMetrics(o.Registerer),
	}
	sizes := &autoscaler.Reconciler{
		Client: mgr.GetClient(), LocalClusterID: o.ClusterID, Demand: o.Sizing,
		Recorder: mgr.GetEventRecorder("autoscaler"), Metrics: autoscaler.NewMetrics(o.Registerer),
	}
	if o.AdoptPools {
		adoption := &poolmigration.PoolAdoptionReconciler{
			Client: mgr.GetClient(), LocalClusterID: o.ClusterID, Recorder: mgr.GetEventRecorder("pooladoption"),
		}
		if err := adoption.SetupWithManager(mgr, o.Controller); err != nil {
			return err
		}
	}
	kept := checkpoints.NewMetrics(o.Registerer) // also without a folder: alerts and dashboards name them
	ends := &checkpoints.Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Metrics: kept}
	if o.Checkpoints != nil {
		ends.Store = o.Checkpoints
		sweeper := &checkpoints.Sweeper{Live: mgr.GetAPIReader(), Store: o.Checkpoints, Partial: o.Checkpoints.Sweep}
		if err := sweeper.SetupWithManager(mgr); err != nil {
			return err
		}
	}
	if err := ends.SetupWithManager(mgr, o.Controller); err != nil {
		return err
	}
	if o.TemplateRegistry != "" {
		built := &builds.Reconciler{Client: mgr.GetClient(), Registry: o.TemplateRegistry, PullSecret: o.TemplatePullSecret, Checkpoints: o.Checkpoints != nil}
		if err := built.SetupWithManager(mgr, o.Controller); err != nil {
			return err
		}
	}
	return errors.Join(
		sizes.SetupWithManager(mgr, o.Controller),
		envs.SetupWithManager(mgr, o.Controller),
		pools.SetupWithManager(mgr, o.Controller),
		sandboxes.SetupWithManager(mgr, o.Controller),
		idle.SetupWithManager(mgr),
	)
}
