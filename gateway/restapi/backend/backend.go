package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/pauseroom"
	"github.com/sandlane/sandlane/egress"
	"github.com/sandlane/sandlane/egress/keys"
	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/gateway/index"
	"github.com/sandlane/sandlane/gateway/pause/files"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
)

// Backend is what the REST API does to sandboxes: restapi.Sandboxes over the parts
// of this gateway. It is safe for concurrent use.
//
// It reads what it says of a sandbox from the API server: one of the gateway's live
// reads for one sandbox; for a list the consistent list of the namespace, which later
// pages use too (see List). The index would have to keep all metadata for that, and would
// not show a sandbox that another gateway made a moment ago.
type Backend struct {
	api         client.Client
	pods        kubernetes.Interface // for logs
	index       *index.Index
	live        *index.Live
	cache       *routecache.Cache
	ended       Endings
	activator   *activation.Activator
	wait        func(namespace, id string) (leave func(), err error)
	agent       Agent
	callable    sandboxdclient.Pods
	pauser      Pauser
	snapshots   *files.Snapshots                                     // nil: no sandbox hibernates here
	rehibernate func(ctx context.Context, s *v1alpha1.Sandbox) error // Options.Rehibernate
	node        *NodeSize
	closed      egress.Closed
	system      string
	publicKeys  func(context.Context) (*keys.Public, error)
	log         *slog.Logger

	lists lists
	kept  keptLists
	undos undos
	rooms pauseroom.Rooms // of freezes that clients ask for

	logLimit rate.Sometimes // for lines that a client can cause in numbers
}

var sandboxID = regexp.MustCompile(v1alpha1.IDPattern)

var _ restapi.Sandboxes = (*Backend)(nil)

// New makes a Backend of the parts.
func New(o Options) *Backend {
	x := &Backend{
		api: o.API, pods: o.Pods, index: o.Index, live: o.Live, cache: o.Cache, ended: o.Endings, activator: o.Activation, wait: o.Wait,
		agent: o.Agent, callable: sandboxdclient.NewPods(o.API, o.Cache), pauser: o.Pauser, snapshots: o.Snapshots, rehibernate: o.Rehibernate, node: o.Node, closed: o.Closed, system: o.SystemNamespace, publicKeys: o.PublicKeys, log: o.Log,
		logLimit: rate.Sometimes{Interval: time.Second},
	}
	x.undos.ctx, x.undos.cancel = context.WithCancel(context.Background())
	return x
}

// Get implements restapi.Sandboxes.
func (x *Backend) Get(ctx context.Context, namespace, id string) (restapi.Sandbox, error) {
	s, err := x.get(ctx, namespace, id)
	if err != nil {
		return restapi.Sandbox{}, err
	}
	return x.describe(s), nil
}

// get reads a sandbox of the namespace that has not ended, as one of the live reads of
// the caller's key.
func (x *Backend) get(ctx context.Context, namespace, id string) (*v1alpha1.Sandbox, error) {
	return x.getBy(ctx, namespace, id, func(ctx context.Context, id string) (*v1alpha1.Sandbox, error) {
		return x.live.Sandbox(ctx, readerOf(ctx, namespace), id)
	})
}

// readerOf returns whose share of live reads a read counts against: that of the API key of
// ctx's request, or, if no request asked for the read, that of the namespace.
func readerOf(ctx context.Context, namespace string) string {
	if key := restapi.KeyOf(ctx); key != "" {
		return key
	}
	return namespace
}

func (x *Backend) getBy(ctx context.Context, namespace, id string, read func(context.Context, string) (*v1alpha1.Sandbox, error)) (*v1alpha1.Sandbox, error) {
	if !sandboxID.MatchString(id) {
		return nil, restapi.ErrNotFound
	}
	s, err := read(ctx, id)
	if err != nil {
		return nil, readError(err)
	}
	if s == nil || s.Spec.Namespace != namespace || hasEnded(s) {
		return nil, restapi.ErrNotFound
	}
	return s, nil
}

// readError turns the error of a live read into package restapi's.
func readError(err error) error {
	if errors.Is(err, routing.ErrLimited) {
		return fmt.Errorf("%w: %w", restapi.ErrBusy, err)
	}
	return err
}

// hasEnded reports whether a sandbox has ended, or is due to.
func hasEnded(s *v1alpha1.Sandbox) bool {
	at := s.Spec.Timeouts.EndAt
	due := at != nil && !s.Spec.Paused && s.Spec.Restore == nil && s.Spec.Timeouts.OnTimeout != v1alpha1.TimeoutPause && !time.Now().Before(at.Time)
	return s.Spec.End != nil || s.DeletionTimestamp != nil || due
}

// describe says of a sandbox what the REST API shows. A sandbox starts when it is
// made: pages of a list are in the order of that time, which must not change.
func (x *Backend) describe(s *v1alpha1.Sandbox) restapi.Sandbox {
	d := restapi.Sandbox{
		ID: s.Name, UID: s.UID, Namespace: s.Spec.Namespace, Team: s.Spec.Team, SandboxEnv: s.Spec.Env, Pool: s.Spec.Pool, Snapshot: s.Annotations[v1alpha1.AnnotationSnapshot],
		StartedAt: v1alpha1.SandboxCreatedAt(s), Metadata: s.Spec.Metadata,
		Private: s.Spec.Network.Private, Secure: !s.Spec.Network.Unsecured, Internet: s.Annotations[v1alpha1.AnnotationInternet] == "true",
		Rules: rulesShown(s), PoolNames: poolNames(s),
	}
	if !v1alpha1.GeneratedID(s.Name) && !d.Private {
		reach := x.index.ReachOfEnv(s.Spec.Namespace, s.Spec.Env, s.Spec.Pool)
		d.Private, d.Keyed = reach == v1alpha1.ReachToken, reach == v1alpha1.ReachKey
	}
	if at := s.Spec.Timeouts.EndAt; at != nil {
		d.EndAt = at.Time
	}
	d.AutoPause, d.AutoResume = s.Spec.Timeouts.OnTimeout == v1alpha1.TimeoutPause, v1alpha1.ResumesFrozen(s.Spec.Timeouts.AutoResume)
	if v1alpha1.EverPaused(s) {
		d.ResumedAt = lifeSince(s)
	}
	if s.Spec.Paused || v1alpha1.Restoring(s) {
		d.Paused, d.EndAt = true, pausedAt(s)
		d.Saved = s.Spec.Restore != nil
		d.Frozen = !d.Saved && s.Spec.PauseMode == v1alpha1.PauseFreeze
	}
	var template *v1alpha1.SandboxTemplateSpec
	if pool, ok := x.index.Pool(s.Spec.Namespace, s.Spec.Pool); ok {
		template = x.index.Template(pool)
	}
	z := x.node.of(template)
	d.CPUCount, d.MemoryMB, d.DiskMB = z.cpus, z.memoryMB, z.diskMB
	return d
}
