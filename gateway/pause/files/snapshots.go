package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/checkpoint"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
)

// Store keeps archives. A checkpoint.Store implements it.
type Store interface {
	Put(ctx context.Context, id string, r io.Reader) (checkpoint.Info, error)
	Get(ctx context.Context, id string) (checkpoint.Archive, checkpoint.Info, error)
	Room(ctx context.Context) (checkpoint.Room, error)
}

// Limits are those of a namespace; 0 is no limit.
type Limits struct {
	// Snapshots is how many are kept, SnapshotsOfKey how many of them one API key has made.
	Snapshots, SnapshotsOfKey int
	// SnapshotBytes is how many times the bytes that the store has free for snapshots a
	// namespace may keep when it makes one, SnapshotBytesOfKey those of one API key, and
	// PauseBytes and PauseBytesOfKey how many times all free bytes when a sandbox hibernates.
	SnapshotBytes, SnapshotBytesOfKey, PauseBytes, PauseBytesOfKey int
}

// Agent reads and restores the files of a pod. *sandboxdclient.Agent implements it.
type Agent interface {
	Archive(ctx context.Context, id string, pod *corev1.Pod) (io.ReadCloser, error)
	Restore(ctx context.Context, id string, pod *corev1.Pod, r *sandboxdclient.Restoring) error
}

// Live reads a sandbox from the API server, within the reader's share of such reads; it
// returns nil if there is no such sandbox.
type Live interface {
	Sandbox(ctx context.Context, reader, id string) (*v1alpha1.Sandbox, error)
}

// Options are the parts of the gateway that Snapshots work with. All but the limits are
// required.
type Options struct {
	API   client.Client // must not read from a cache
	Live  Live
	Pods  sandboxdclient.Pods
	Agent Agent
	Store Store
	// Place waits for one of the places for archives, within the namespace's share. Nil: they
	// are not bounded.
	Place func(ctx context.Context, namespace string) (leave func(), err error)
	// Exceeded reports whether a ResourceQuota forbade a write.
	Exceeded func(error) bool
	// Limits returns a namespace's limits; nil is none.
	Limits  func(namespace string) Limits
	Metrics *Metrics
	Log     *slog.Logger
}

// Snapshots are restapi.Snapshots over Checkpoint objects. Safe for concurrent use.
type Snapshots struct {
	o        Options
	reserved reservations
	taking   taking
	ledger   ledger
}

var _ restapi.Snapshots = (*Snapshots)(nil)

// New makes Snapshots.
func New(o Options) *Snapshots { return &Snapshots{o: o} }

var idPattern = regexp.MustCompile(v1alpha1.IDPattern)

// Get implements restapi.Snapshots.
func (x *Snapshots) Get(ctx context.Context, namespace, id string) (restapi.Snapshot, error) {
	cp, err := x.get(ctx, namespace, id)
	if err != nil {
		return restapi.Snapshot{}, err
	}
	return describe(cp), nil
}

func (x *Snapshots) get(ctx context.Context, namespace, id string) (*v1alpha1.Checkpoint, error) {
	if !idPattern.MatchString(id) {
		return nil, restapi.ErrNoSnapshot
	}
	cp := &v1alpha1.Checkpoint{}
	err := x.o.API.Get(ctx, client.ObjectKey{Namespace: namespace, Name: id}, cp)
	switch {
	case apierrors.IsNotFound(err):
		return nil, restapi.ErrNoSnapshot
	case err != nil:
		return nil, fmt.Errorf("read snapshot %s: %w", id, err)
	case !usable(cp):
		return nil, restapi.ErrNoSnapshot
	}
	return cp, nil
}

// usable reports whether a Checkpoint is a snapshot that is whole and stays.
func usable(cp *v1alpha1.Checkpoint) bool {
	return cp.Spec.Cause == v1alpha1.CheckpointSnapshot && cp.DeletionTimestamp == nil && cp.Status.Phase == v1alpha1.CheckpointSucceeded
}

// List implements restapi.Snapshots.
func (x *Snapshots) List(ctx context.Context, namespace string) ([]restapi.Snapshot, error) {
	var all v1alpha1.CheckpointList
	if err := x.o.API.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	found := []restapi.Snapshot{}
	for i := range all.Items {
		if usable(&all.Items[i]) {
			found = append(found, describe(&all.Items[i]))
		}
	}
	return found, nil
}

// Delete implements restapi.Snapshots. The controller deletes the data.
func (x *Snapshots) Delete(ctx context.Context, namespace, id string) error {
	cp, err := x.get(ctx, namespace, id)
	if err != nil {
		return err
	}
	err = x.o.API.Delete(ctx, cp, client.Preconditions{UID: &cp.UID})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return restapi.ErrNoSnapshot
	case err != nil:
		return fmt.Errorf("delete snapshot %s: %w", id, err)
	}
	return nil
}

func describe(cp *v1alpha1.Checkpoint) restapi.Snapshot {
	return restapi.Snapshot{
		ID: cp.Name, Names: cp.Spec.Names, SandboxID: cp.Spec.SandboxID, Pool: cp.Status.Pool, At: cp.CreationTimestamp.Time,
	}
}

// publicError turns an error of a snapshot into one of package restapi, which the REST API
// shows to the client. Other errors stay as they are, and are answered as failures of the
// server.
func publicError(err error) error {
	for _, m := range []struct{ from, to error }{
		{checkpoint.ErrTooLarge, restapi.ErrSnapshotTooLarge},
		{checkpoint.ErrFull, restapi.ErrSnapshotStoreFull},
		{errNoPlace, restapi.ErrBusy},
		{errSlow, restapi.ErrUnanswered},
		{sandboxdclient.ErrBusy, restapi.ErrSnapshotting},
		{sandboxdclient.ErrNotInitialised, restapi.ErrNotRunning},
	} {
		if errors.Is(err, m.from) {
			return fmt.Errorf("%w: %w", m.to, err)
		}
	}
	if errors.Is(err, sandboxdclient.ErrNoArchive) {
		return fmt.Errorf("%w: %w", restapi.Invalidf("its pool's pods cannot be snapshotted: they need sandboxd alone, as their first process and with the right to read and to give away all files, and no liveness probe"), err)
	}
	return err
}

// message returns an error's text, shortened for the log.
func message(err error) string {
	const longest = 500
	text := strings.ToValidUTF8(err.Error(), "?")
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "")
	}
	return text
}
