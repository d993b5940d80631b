package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// patience is how long the API server may take to answer one request of a page.
const patience = 15 * time.Second

// refusal is an action that is not possible; its text is shown.
type refusal string

func (r refusal) Error() string { return string(r) }

// act ends, pauses or resumes a sandbox, or opens a port of it: of the one whose UID the page
// showed.
func (s *Server) act(w http.ResponseWriter, r *http.Request) {
	var body struct {
		UID  types.UID `json:"uid"`
		Port uint16    `json:"port"` // to open
	}
	if !idPattern.MatchString(r.PathValue("id")) {
		http.Error(w, notAnID, http.StatusBadRequest)
		return
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&body); err != nil || body.UID == "" {
		http.Error(w, "the sandbox's UID is missing", http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	link := ""
	action := map[string]func(context.Context, *v1alpha1.Sandbox) error{
		"end": s.end, "pause": s.pause, "resume": s.resume,
		"open": func(ctx context.Context, live *v1alpha1.Sandbox) (err error) {
			link, err = s.open(ctx, live, body.Port)
			return err
		},
	}[r.PathValue("action")]
	if action == nil {
		http.NotFound(w, r)
		return
	}
	live := &v1alpha1.Sandbox{}
	err := s.api.Get(ctx, client.ObjectKey{Name: r.PathValue("id")}, live)
	if err == nil && live.UID != body.UID {
		err = refusal("the sandbox was replaced by another one of the same ID; nothing was done")
	}
	if err == nil {
		err = action(ctx, live)
	}
	if err != nil {
		code := http.StatusBadGateway
		switch {
		case errors.As(err, new(refusal)), errors.Is(err, writes.ErrStale), writes.Refused(err):
			code = http.StatusConflict
		case apierrors.IsForbidden(err):
			code = http.StatusForbidden
		case apierrors.IsNotFound(err):
			code = http.StatusNotFound
		}
		if writes.Refused(err) {
			err = writes.ErrStale
		}
		http.Error(w, err.Error(), code)
		return
	}
	if link != "" {
		writeJSON(w, map[string]string{"link": link})
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// open returns a link that opens a port once.
func (s *Server) open(ctx context.Context, live *v1alpha1.Sandbox, port uint16) (string, error) {
	switch {
	case s.o.Link == nil:
		return "", refusal("where are the sandboxes? Start the console with --domain")
	case live.Spec.End != nil || live.DeletionTimestamp != nil:
		return "", refusal("the sandbox has ended")
	case port == 0 || port == v1alpha1.SandboxdPort:
		return "", refusal("a port is 1 to 65535, and not sandboxd's (49983)")
	}
	return s.o.Link(ctx, s.api, live, port)
}

func (s *Server) end(ctx context.Context, live *v1alpha1.Sandbox) error {
	return writes.EndSandbox(ctx, s.api, live.Name, v1alpha1.EndReleased, "ended by hand (sandlane console)", writes.OfUID(live.UID))
}

// pause freezes: nothing is lost by it. What the REST API asks before it pauses is asked
// here too; the controller undoes a pause that the pod refuses.
func (s *Server) pause(ctx context.Context, live *v1alpha1.Sandbox) error {
	pool, pod := &v1alpha1.SandboxPool{}, &corev1.Pod{}
	if live.Spec.Binding != nil {
		if err := s.api.Get(ctx, client.ObjectKey{Namespace: live.Spec.Namespace, Name: live.Spec.Pool}, pool); err != nil {
			return fmt.Errorf("read its pool: %w", err)
		}
		if err := s.api.Get(ctx, client.ObjectKey{Namespace: live.Spec.Namespace, Name: live.Spec.Binding.PodName}, pod); err != nil {
			return fmt.Errorf("read its pod: %w", err)
		}
	}
	if _, limited := v1alpha1.MaxPaused(&pool.Spec); limited && (!s.kinds["sandboxes"].informer.HasSynced() || s.kinds["sandboxes"].refusal() != "") {
		return refusal("the pool's paused sandboxes cannot be counted")
	}
	if err := mayFreeze(live, pool, pod, s.frozen(live)); err != nil {
		return err
	}
	return s.patch(ctx, live, writes.Pause(live))
}

// frozen counts the paused sandboxes of the same pool that keep their pods.
func (s *Server) frozen(of *v1alpha1.Sandbox) int {
	n := 0
	for _, o := range objects[*v1alpha1.Sandbox](s.kinds["sandboxes"]) {
		if o.Spec.Namespace == of.Spec.Namespace && o.Spec.Pool == of.Spec.Pool && o.Spec.Paused && o.Spec.Binding != nil && o.Spec.End == nil {
			n++
		}
	}
	return n
}

// mayFreeze says why a sandbox cannot be frozen; nil if it can, as far as objects tell.
func mayFreeze(s *v1alpha1.Sandbox, pool *v1alpha1.SandboxPool, pod *corev1.Pod, frozen int) error {
	most, limited := v1alpha1.MaxPaused(&pool.Spec)
	switch {
	case s.Spec.End != nil || s.DeletionTimestamp != nil:
		return refusal("the sandbox has ended")
	case s.Spec.Paused:
		return refusal("the sandbox is paused already")
	case s.Spec.Binding == nil || s.Spec.Restore != nil || s.Status.Phase != v1alpha1.SandboxRunning:
		return refusal("the sandbox does not run")
	case !v1alpha1.Backs(pod, s) || v1alpha1.PhaseOf(pod) != v1alpha1.PodRunning:
		return refusal("the sandbox's pod does not run")
	case !v1alpha1.Freezable(&pod.Spec):
		return refusal("the sandbox's pod cannot be frozen: one container that runs sandboxd can, without a liveness probe")
	case !v1alpha1.AllowsPause(&pool.Spec, v1alpha1.PauseFreeze):
		return refusal("the pool's spec.pause.modes has no Freeze; the REST API can hibernate the sandbox")
	case limited && frozen >= most:
		return refusal(fmt.Sprintf("the pool has %d paused sandboxes, as many as it allows (spec.pause.maxPaused)", frozen))
	}
	return nil
}

// resume lets the sandbox run for as long as a request that resumes it would.
func (s *Server) resume(ctx context.Context, live *v1alpha1.Sandbox) error {
	switch {
	case live.Spec.End != nil || live.DeletionTimestamp != nil:
		return refusal("the sandbox has ended")
	case !live.Spec.Paused:
		return refusal("the sandbox is not paused")
	case live.Spec.Binding == nil:
		return refusal("the sandbox hibernates: it needs a new pod, which the SDK's connect gets for it")
	}
	var endAt *metav1.Time
	if !live.Spec.FirstRequest || live.Spec.Timeouts.Lifetime != nil { // else its idle timeout alone ends it
		endAt = v1alpha1.EndAfter(time.Now(), v1alpha1.AutoLifetime(live))
	}
	return s.patch(ctx, live, writes.Resume(live, endAt))
}

func (s *Server) patch(ctx context.Context, live *v1alpha1.Sandbox, p writes.Patch) error {
	if err := s.api.Patch(ctx, live, p.Build()); err != nil {
		return fmt.Errorf("write sandbox %s: %w", live.Name, err)
	}
	return nil
}

// rights are what the page offers. Each action is judged once more when it is done.
type rights struct {
	patch bool // sandboxes: to end, pause and resume them
	open  bool // to open their ports: to read the seed of tokens, and to make Leases beside it
}

// askRights asks the API server what the user may do.
func (s *Server) askRights(ctx context.Context) (r rights, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	may := func(of authorizationv1.ResourceAttributes) bool {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &of}}
		err = errors.Join(err, s.api.Create(ctx, review))
		return review.Status.Allowed
	}
	r.patch = may(authorizationv1.ResourceAttributes{Group: v1alpha1.GroupVersion.Group, Resource: "sandboxes", Verb: "patch"})
	if s.o.Link != nil {
		r.open = may(authorizationv1.ResourceAttributes{Namespace: s.o.SystemNamespace, Resource: "secrets", Name: "token-seed", Verb: "get"}) &&
			may(authorizationv1.ResourceAttributes{Namespace: s.o.SystemNamespace, Group: coordinationv1.GroupName, Resource: "leases", Verb: "create"})
	}
	if err != nil {
		return rights{}, fmt.Errorf("ask for the rights: %w", err)
	}
	return r, nil
}
