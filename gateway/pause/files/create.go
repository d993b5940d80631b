package files

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/checkpoint"
	"github.com/sandlane/sandlane/failpoint"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/routing"
)

const (
	// discardTimeout bounds the deletion of a failed snapshot's Checkpoint.
	discardTimeout = 5 * time.Second
	// writeTries is how many times a write is tried while other processes change the object.
	writeTries = 5
	retryMin   = 20 * time.Millisecond
	retryMax   = time.Second
)

// Create implements restapi.Snapshots.
func (x *Snapshots) Create(ctx context.Context, caller routing.KeyOwner, sandboxID string, names []string) (restapi.Snapshot, error) {
	begun := time.Now()
	made, err := x.create(ctx, caller, sandboxID, names)
	x.o.Metrics.observe(opCreate, begun, err)
	return made, err
}

func (x *Snapshots) create(ctx context.Context, caller routing.KeyOwner, sandboxID string, names []string) (restapi.Snapshot, error) {
	s, pod, err := x.running(ctx, caller, sandboxID)
	if err == nil && !identified(pod) {
		err = publicError(errUnidentified)
	}
	if err != nil {
		return restapi.Snapshot{}, err
	}
	end, err := x.begin(ctx, caller.Namespace, s.Spec.Binding.ClaimID)
	if err != nil {
		return restapi.Snapshot{}, fmt.Errorf("snapshot sandbox %s: %w", sandboxID, publicError(err))
	}
	defer end()
	cp := &v1alpha1.Checkpoint{}
	cp.Namespace, cp.Name = caller.Namespace, newID()
	cp.Finalizers = []string{v1alpha1.FinalizerCheckpoint}
	if caller.KeyID != "" {
		cp.Annotations = map[string]string{v1alpha1.AnnotationOwner: caller.KeyID}
	}
	cp.Spec = v1alpha1.CheckpointSpec{
		SandboxID: s.Name, SandboxUID: string(s.UID), ClaimID: s.Spec.Binding.ClaimID,
		Contents: []v1alpha1.CheckpointContent{v1alpha1.CheckpointFilesystem}, Cause: v1alpha1.CheckpointSnapshot, Names: names,
	}
	if err := x.makeObject(ctx, caller, cp); err != nil {
		return restapi.Snapshot{}, fmt.Errorf("snapshot sandbox %s: %w", sandboxID, err)
	}
	failpoint.Hit("snapshots/created") // the object exists, and no files are kept
	if err := x.save(ctx, caller, cp); err != nil {
		x.discard(ctx, cp, err)
		return restapi.Snapshot{}, fmt.Errorf("snapshot sandbox %s: %w", sandboxID, publicError(err))
	}
	return describe(cp), nil
}

// makeObject creates the Checkpoint of a snapshot; restapi.ErrSnapshotLimit if the caller keeps
// as many as it may.
func (x *Snapshots) makeObject(ctx context.Context, caller routing.KeyOwner, cp *v1alpha1.Checkpoint) error {
	giveBack, err := x.reserve(ctx, caller)
	if err != nil {
		return err
	}
	defer giveBack()
	return x.createError(x.o.API.Create(ctx, cp))
}

// createError turns the error of a Checkpoint's creation into restapi.ErrSnapshotLimit if a
// ResourceQuota forbids it.
func (x *Snapshots) createError(err error) error {
	if err != nil && x.o.Exceeded(err) {
		return fmt.Errorf("%w: %w", restapi.ErrSnapshotLimit, err)
	}
	return err
}

// newID makes a name like a generated sandbox ID, but begins it with "s" and the time in
// microseconds: objects tell their age in seconds, and of two in one second the later ID is
// the newer.
func newID() string {
	at := strconv.FormatInt(time.Now().UnixMicro(), 36) // 10 digits until 2085
	return "s" + at + strings.ToLower(rand.Text()[:20-len(at)])
}

// running reads a sandbox of the caller's namespace and its pod. It is an error if the
// sandbox does not run, or its pod may not be called.
func (x *Snapshots) running(ctx context.Context, caller routing.KeyOwner, id string) (*v1alpha1.Sandbox, *corev1.Pod, error) {
	reader := restapi.KeyOf(ctx)
	if reader == "" {
		reader = caller.Namespace
	}
	for delays := backoff.Doubling(retryMin, retryMax); ; {
		token := x.o.Pods.Begin(id)
		s, err := x.o.Live.Sandbox(ctx, reader, id)
		switch {
		case errors.Is(err, routing.ErrLimited):
			return nil, nil, fmt.Errorf("%w: %w", restapi.ErrBusy, err)
		case err != nil:
			return nil, nil, err
		case s == nil || s.Spec.Namespace != caller.Namespace || s.Spec.End != nil || s.DeletionTimestamp != nil:
			return nil, nil, restapi.ErrNotFound
		case s.Spec.Paused || s.Spec.Binding == nil || s.Spec.Release != nil:
			return nil, nil, restapi.ErrNotRunning
		}
		pod, err := x.o.Pods.Callable(ctx, token, s)
		switch {
		case err == nil && v1alpha1.PhaseOf(pod) == v1alpha1.PodRunning:
			return s, pod, nil
		case err == nil, errors.Is(err, sandboxdclient.ErrPodGone):
			return nil, nil, restapi.ErrNotRunning
		case !errors.Is(err, writes.ErrStale) || !backoff.Sleep(ctx, delays.Step()):
			return nil, nil, fmt.Errorf("snapshot sandbox %s: %w", id, err)
		}
	}
}

// save puts the files of the sandbox into the store, and takes the Checkpoint from its
// creation to Succeeded. It looks at the sandbox again right before it calls the pod: the
// writes since the first look may have taken so long that the pod's address serves another
// sandbox, or that the sandbox runs in another pod.
func (x *Snapshots) save(ctx context.Context, caller routing.KeyOwner, cp *v1alpha1.Checkpoint) error {
	err := x.setStatus(ctx, cp, "", v1alpha1.CheckpointStatus{Phase: v1alpha1.CheckpointCreating})
	if err != nil {
		return err
	}
	s, pod, err := x.running(ctx, caller, cp.Spec.SandboxID)
	if err == nil && (string(s.UID) != cp.Spec.SandboxUID || s.Spec.Binding.ClaimID != cp.Spec.ClaimID) { // a claim has one pod
		err = restapi.ErrNotRunning
	}
	if err != nil {
		return err
	}
	archive, err := x.open(ctx, func(ctx context.Context) (io.ReadCloser, error) { return x.o.Agent.Archive(ctx, s.Name, pod) })
	if err != nil {
		return err
	}
	return x.put(ctx, cp, archive, func(info checkpoint.Info) error {
		failpoint.Hit("snapshots/kept") // the data is in the store, and the object does not say so yet
		return x.setStatus(ctx, cp, v1alpha1.CheckpointCreating, v1alpha1.CheckpointStatus{
			Phase: v1alpha1.CheckpointSucceeded, CheckpointID: cp.Name, Bytes: info.Bytes, Digest: info.Digest, CompletedAt: new(metav1.Now()),
			Pool: s.Spec.Pool, Images: v1alpha1.ImageDigests(pod), TemplateHash: pod.Annotations[v1alpha1.AnnotationTemplateHash],
		})
	})
}

// errGivenUp: the controller has given the Checkpoint up, by writing Failed or by deleting
// it.
var errGivenUp = errors.New("the checkpoint was given up meanwhile")

// setStatus replaces the status of a Checkpoint whose phase is from; errGivenUp if it is in
// another phase.
func (x *Snapshots) setStatus(ctx context.Context, cp *v1alpha1.Checkpoint, from v1alpha1.CheckpointPhase, to v1alpha1.CheckpointStatus) error {
	var err error
	for range writeTries {
		if cp.Status.Phase != from || cp.DeletionTimestamp != nil {
			return errGivenUp
		}
		base := cp.DeepCopy()
		cp.Status = to
		err = x.o.API.Status().Patch(ctx, cp, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
		if !apierrors.IsConflict(err) {
			break
		}
		if err = x.o.API.Get(ctx, client.ObjectKeyFromObject(base), cp); err != nil {
			break
		}
		err = errGivenUp
	}
	if err != nil {
		return fmt.Errorf("write the status of checkpoint %s: %w", cp.Name, err)
	}
	return nil
}

// discard deletes a Checkpoint whose files could not be kept. If the deletion fails too,
// the controller deletes it.
func (x *Snapshots) discard(ctx context.Context, cp *v1alpha1.Checkpoint, cause error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTimeout)
	defer cancel()
	x.o.Log.Warn("a snapshot failed", "sandbox", cp.Spec.SandboxID, "checkpoint", cp.Name, "reason", message(cause))
	if err := x.o.API.Delete(ctx, cp, client.Preconditions{UID: &cp.UID}); err != nil && !apierrors.IsNotFound(err) {
		x.o.Log.Warn("deleting a failed checkpoint is left to the controller", "checkpoint", cp.Name, "error", err)
	}
}
