package backend

import (
	"context"
	"log/slog"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/egress"
	"github.com/sandlane/sandlane/egress/keys"
	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/gateway/index"
	"github.com/sandlane/sandlane/gateway/pause/files"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
)

// Endings are the claims whose sandboxes this gateway has ended, which the index
// may not know yet.
type Endings interface {
	// Add is called when the end of the claim's sandbox is written.
	Add(claim string)
	// Correct turns the answer into Ended if this gateway ended its claim.
	Correct(a routing.Answer) routing.Answer
}

// Agent speaks to the sandboxd of a pod.
type Agent interface {
	// InitRestored gives it the sandbox's token and environment, if it is the process that has
	// restored the archive; nil is none.
	InitRestored(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod, env map[string]string, r *sandboxdclient.Restoring) error
	// Trust has the programs of a sandbox that runs trust what its rules need.
	Trust(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) error
	// Metrics asks the one at an address what its sandbox uses, and with history what
	// it has used, oldest first.
	Metrics(ctx context.Context, addr netip.Addr, id string, uid types.UID, history bool) ([]sandboxdclient.Metrics, error)
}

// Pauser pauses and resumes sandboxes that were read just now.
type Pauser interface {
	// Pause returns when all that runs in the sandbox is stopped, or its files are kept and
	// its pod is given up.
	Pause(ctx context.Context, s *v1alpha1.Sandbox, mode v1alpha1.PauseMode) error
	// Resume returns when it runs again, to end at that time.
	Resume(ctx context.Context, s *v1alpha1.Sandbox, endAt *metav1.Time) error
}

// Restorer restores the files of a new sandbox's pod. *files.Restorer is one.
type Restorer interface {
	// Ready is an activation.Ready, to be called before sandboxd is initialised.
	Ready(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) error
	// Restored returns the archive from which the last Ready restored the files; nil if none.
	Restored() *sandboxdclient.Restoring
	Close()
}

// Options are the parts of the gateway that a Backend works with. All but Snapshots are required;
// Rehibernate only with Snapshots.
type Options struct {
	API        client.Client        // must not read from a cache
	Pods       kubernetes.Interface // for logs
	Index      *index.Index
	Live       *index.Live
	Cache      *routecache.Cache
	Endings    Endings
	Activation *activation.Activator
	// Wait takes a place for a call that waits for a pod, until leave is called.
	Wait   func(namespace, id string) (leave func(), err error)
	Agent  Agent
	Pauser Pauser
	// Snapshots keeps and restores files of sandboxes; nil: there is no store for them.
	Snapshots *files.Snapshots
	// Rehibernate takes back the resume of a sandbox that has no pod; the sandbox hibernates
	// again.
	Rehibernate func(ctx context.Context, s *v1alpha1.Sandbox) error
	Node        *NodeSize
	Closed      egress.Closed // what no sandbox may connect to
	// SystemNamespace is where egress processes are, and PublicKeys reads what rules are
	// sealed to.
	SystemNamespace string
	PublicKeys      func(context.Context) (*keys.Public, error)
	Log             *slog.Logger
}
