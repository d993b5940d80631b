package snapshots

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
	"github.com/sandlane/sandlane/controlplane/e2b"
	"github.com/sandlane/sandlane/gateway/agent"
)

// Store keeps archives. A checkpoint.Store implements it.
type Store interface {
	Put(ctx context.Context, id string, r io.Reader) (checkpoint.Info, error)
	Get(ctx context.Context, id string) (checkpoint.Archive, checkpoint.Info, error)
}

// Agent reads and restores the files of a pod. *agent.Agent implements it.
type Agent interface {
	Archive(ctx context.Context, id string, pod *corev1.Pod) (io.ReadCloser, error)
	Restore(ctx context.Context, id string, pod *corev1.Pod, r *agent.Restoring) error
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
	Pods  agent.Pods
	Agent Agent
	Store Store
	// Exceeded reports whether a ResourceQuota forbade a write.
	Exceeded func(error) bool
	// MaxInNamespace is how many snapshots a namespace keeps, MaxByKey how many of them
	// one API key has made; 0 is no limit.
	MaxInNamespace, MaxByKey int
	Metrics                  *Metrics
	Log                      *slog.Logger
}

// Snapshots are e2b.Snapshots over Checkpoint objects. Safe for concurrent use.
type Snapshots struct {
	o        Options
	reserved reservations
}

var _ e2b.Snapshots = (*Snapshots)(nil)

// New makes Snapshots.
func New(o Options) *Snapshots { return &Snapshots{o: o} }

var idPattern = regexp.MustCompile(v1alpha1.IDPattern)

// Get implements e2b.Snapshots.
func (x *Snapshots) Get(ctx context.Context, namespace, id string) (e2b.Snapshot, error) {
	cp, err := x.get(ctx, namespace, id)
	if err != nil {
		return e2b.Snapshot{}, err
	}
	return describe(cp), nil
}

func (x *Snapshots) get(ctx context.Context, namespace, id string) (*v1alpha1.Checkpoint, error) {
	if !idPattern.MatchString(id) {
		return nil, e2b.ErrNoSnapshot
	}
	cp := &v1alpha1.Checkpoint{}
	err := x.o.API.Get(ctx, client.ObjectKey{Namespace: namespace, Name: id}, cp)
	switch {
	case apierrors.IsNotFound(err):
		return nil, e2b.ErrNoSnapshot
	case err != nil:
		return nil, fmt.Errorf("read snapshot %s: %w", id, err)
	case !usable(cp):
		return nil, e2b.ErrNoSnapshot
	}
	return cp, nil
}

// usable reports whether a Checkpoint is a snapshot that is whole and stays.
func usable(cp *v1alpha1.Checkpoint) bool {
	return cp.Spec.Cause == v1alpha1.CheckpointSnapshot && cp.DeletionTimestamp == nil && cp.Status.Phase == v1alpha1.CheckpointSucceeded
}

// List implements e2b.Snapshots.
func (x *Snapshots) List(ctx context.Context, namespace string) ([]e2b.Snapshot, error) {
	var all v1alpha1.CheckpointList
	if err := x.o.API.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	found := []e2b.Snapshot{}
	for i := range all.Items {
		if usable(&all.Items[i]) {
			found = append(found, describe(&all.Items[i]))
		}
	}
	return found, nil
}

// Delete implements e2b.Snapshots. The controller deletes the data.
func (x *Snapshots) Delete(ctx context.Context, namespace, id string) error {
	cp, err := x.get(ctx, namespace, id)
	if err != nil {
		return err
	}
	err = x.o.API.Delete(ctx, cp, client.Preconditions{UID: &cp.UID})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return e2b.ErrNoSnapshot
	case err != nil:
		return fmt.Errorf("delete snapshot %s: %w", id, err)
	}
	return nil
}

func describe(cp *v1alpha1.Checkpoint) e2b.Snapshot {
	return e2b.Snapshot{
		ID: cp.Name, Names: cp.Spec.Names, SandboxID: cp.Spec.SandboxID, Pool: cp.Status.Pool, At: cp.CreationTimestamp.Time,
	}
}

// publicError turns an error of a snapshot into one of package e2b, which the REST API
// shows to the client. Other errors stay as they are, and are answered as failures of the
// server.
func publicError(err error) error {
	for _, m := range []struct{ from, to error }{
		{checkpoint.ErrTooLarge, e2b.ErrSnapshotTooLarge},
		{checkpoint.ErrFull, e2b.ErrSnapshotStoreFull},
		{agent.ErrBusy, e2b.ErrSnapshotting},
		{agent.ErrNotInitialised, e2b.ErrNotRunning},
	} {
		if errors.Is(err, m.from) {
			return fmt.Errorf("%w: %w", m.to, err)
		}
	}
	if errors.Is(err, agent.ErrNoArchive) {
		return fmt.Errorf("%w: %w", e2b.Invalidf("its pool's pods cannot be snapshotted: they need sandboxd alone, as their first process and with the right to read and to give away all files, and no liveness probe"), err)
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
