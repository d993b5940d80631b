package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/e2b"
	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/gateway/index"
	"github.com/sandlane/sandlane/kubeclient/ending"
	"github.com/sandlane/sandlane/routecache"
)

// sandboxes is what the REST API does to sandboxes: e2b.Sandboxes over the parts
// of this gateway. It is safe for concurrent use.
//
// What it says of a sandbox it reads from the API server: one read for one
// sandbox, out of the gateway's live reads; for a list the consistent list of the
// namespace. The index would have to keep everybody's metadata for that, and would
// not show a sandbox that another gateway made a moment ago.
type sandboxes struct {
	api   client.Client
	pods  kubernetes.Interface // for logs
	index *index.Index
	live  *index.Live
	cache *routecache.Cache
	ended *endings
	wake  *activation.Activator
	agent *agent
	node  *nodeSize
	log   *slog.Logger

	lists chan struct{} // one for each list under way
	undos undos
}

// maxLists bounds how many lists of a namespace's sandboxes are under way.
const maxLists = 4

var sandboxID = regexp.MustCompile(v1alpha1.IDPattern)

var _ e2b.Sandboxes = (*sandboxes)(nil)

// Get implements e2b.Sandboxes.
func (x *sandboxes) Get(ctx context.Context, namespace, id string) (e2b.Sandbox, error) {
	s, err := x.get(ctx, namespace, id)
	if err != nil {
		return e2b.Sandbox{}, err
	}
	return x.describe(s), nil
}

// get reads a sandbox that the namespace owns and that is not over.
func (x *sandboxes) get(ctx context.Context, namespace, id string) (*v1alpha1.Sandbox, error) {
	if !sandboxID.MatchString(id) {
		return nil, e2b.ErrNotFound
	}
	s, err := x.live.Sandbox(ctx, id)
	if err != nil {
		return nil, readError(err)
	}
	if s == nil || s.Spec.Namespace != namespace || over(s) {
		return nil, e2b.ErrNotFound
	}
	return s, nil
}

// readError says in e2b's words why a sandbox could not be read.
func readError(err error) error {
	if errors.Is(err, index.ErrLimited) {
		return fmt.Errorf("%w: %w", e2b.ErrBusy, err)
	}
	return err
}

// over reports whether a sandbox has ended, or is due to.
func over(s *v1alpha1.Sandbox) bool {
	at := s.Spec.Timeouts.EndAt
	return s.Spec.End != nil || s.DeletionTimestamp != nil || at != nil && !time.Now().Before(at.Time)
}

// List implements e2b.Sandboxes.
func (x *sandboxes) List(ctx context.Context, namespace string) ([]e2b.Sandbox, error) {
	select {
	case x.lists <- struct{}{}:
		defer func() { <-x.lists }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	all := []e2b.Sandbox{}
	page := &v1alpha1.SandboxList{}
	for {
		err := x.api.List(ctx, page, client.MatchingFields{v1alpha1.FieldNamespace: namespace},
			client.Limit(500), client.Continue(page.Continue))
		if err != nil {
			return nil, fmt.Errorf("list sandboxes: %w", err)
		}
		for i := range page.Items {
			if s := &page.Items[i]; !over(s) {
				all = append(all, x.describe(s))
			}
		}
		if page.Continue == "" {
			return all, nil
		}
	}
}

// End implements e2b.Sandboxes. The UID is tested, so that a later sandbox of the
// same ID, perhaps of another namespace, is not ended.
func (x *sandboxes) End(ctx context.Context, namespace, id string) error {
	s, err := x.get(ctx, namespace, id)
	if err != nil {
		return err
	}
	err = ending.EndSandbox(ctx, x.api, id, v1alpha1.EndReleased, "killed through the API", ending.OfUID(s.UID))
	if errors.Is(err, ending.ErrMoved) || apierrors.IsNotFound(err) {
		return e2b.ErrNotFound
	}
	if err != nil {
		return err
	}
	if b := s.Spec.Binding; b != nil {
		x.ended.add(b.ClaimID)
	}
	x.cache.Invalidate(id) // after add: whoever resolves from now on finds it ended
	return nil
}

// setEndTries bounds how often SetEnd starts over because the sandbox changed.
const setEndTries = 5

// SetEnd implements e2b.Sandboxes. The write tests that the sandbox is as it was
// judged, so that of two at once the second judges anew.
func (x *sandboxes) SetEnd(ctx context.Context, namespace, id string, at time.Time, shorten bool) (e2b.Sandbox, error) {
	to := metav1.NewTime(at.UTC().Truncate(time.Second))
	for range setEndTries {
		s, err := x.get(ctx, namespace, id)
		if err != nil {
			return e2b.Sandbox{}, err
		}
		was := s.Spec.Timeouts.EndAt
		if was != nil && was.Equal(&to) || !shorten && (was == nil || !to.After(was.Time)) {
			return x.describe(s), nil
		}
		if err = x.writeEnd(ctx, s, to); err == nil {
			return x.describe(s), nil
		}
		if !errors.Is(err, errChanged) {
			return e2b.Sandbox{}, fmt.Errorf("set the end of sandbox %s: %w", id, err)
		}
	}
	return e2b.Sandbox{}, fmt.Errorf("set the end of sandbox %s: %w", id, errChanged)
}

// describe says of a sandbox what the REST API shows. A sandbox starts when it is
// made: pages of a list are in the order of that time, which must not change.
func (x *sandboxes) describe(s *v1alpha1.Sandbox) e2b.Sandbox {
	d := e2b.Sandbox{
		ID: s.Name, Namespace: s.Spec.Namespace, Team: s.Spec.Team, Pool: s.Spec.Pool,
		StartedAt: s.CreationTimestamp.Time, Metadata: s.Spec.Metadata,
		Private: s.Spec.Network.Private, Secure: !s.Spec.Network.Unsecured,
	}
	if at := s.Spec.Timeouts.EndAt; at != nil {
		d.EndAt = at.Time
	}
	var template *v1alpha1.SandboxTemplateSpec
	if pool, ok := x.index.Pool(s.Spec.Namespace, s.Spec.Pool); ok {
		template = x.index.Template(pool)
	}
	z := x.node.of(template)
	d.CPUCount, d.MemoryMB, d.DiskMB = z.cpus, z.memoryMB, z.diskMB
	return d
}

// undos are the creates that are being undone, which may outlast their request.
type undos struct {
	ctx     context.Context // ends them all
	cancel  context.CancelFunc
	running sync.WaitGroup
}
