package gateway

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/checkpoint"
	"github.com/sandlane/sandlane/gateway/index"
	"github.com/sandlane/sandlane/gateway/limits"
	"github.com/sandlane/sandlane/gateway/pause/files"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/restapi/backend"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/kubeclient"
)

// snapshotStore is where this gateway keeps snapshots: their backend and its folder; nil without
// one.
type snapshotStore struct {
	folder *checkpoint.Folder
	*files.Snapshots
}

func (g *gateway) openSnapshots(c client.Client, live *index.Live, a *sandboxdclient.Agent) (*snapshotStore, error) {
	metrics := files.NewMetrics(g.reg) // also without a folder: alerts and dashboards name them
	if g.o.CheckpointDir == "" {
		return nil, nil
	}
	folder, err := checkpoint.OpenFolder(g.o.CheckpointDir, g.o.MaxCheckpointBytes)
	if err != nil {
		return nil, fmt.Errorf("checkpoint folder: %w", err)
	}
	return &snapshotStore{folder, files.New(files.Options{
		API: c, Live: live, Pods: sandboxdclient.NewPods(c, g.cache), Agent: a, Store: folder, Exceeded: kubeclient.QuotaExceeded,
		Place: limits.NewArchives(g.limits).Wait,
		Limits: func(namespace string) files.Limits {
			l := g.limits.Of(namespace)
			return files.Limits{
				Snapshots: l.Snapshots, SnapshotsOfKey: l.SnapshotsOfKey,
				SnapshotBytes: l.SnapshotBytes, SnapshotBytesOfKey: l.SnapshotBytesOfKey, PauseBytes: l.PauseBytes, PauseBytesOfKey: l.PauseBytesOfKey,
			}
		},
		Metrics: metrics, Log: g.o.Log,
	})}, nil
}

// backend returns what the REST API keeps and lists snapshots with; nil without a folder.
func (k *snapshotStore) backend() restapi.Snapshots {
	if k == nil {
		return nil
	}
	return k.Snapshots
}

// restorer returns what the REST API's create restores files with; nil without a folder.
func (k *snapshotStore) restorer() func(ctx context.Context, namespace, snapshot string) (backend.Restorer, error) {
	if k == nil {
		return nil
	}
	return func(ctx context.Context, namespace, snapshot string) (backend.Restorer, error) {
		r, err := k.Restorer(ctx, namespace, snapshot)
		if err != nil {
			return nil, err
		}
		return r, nil
	}
}

// reserveForPause returns the function that reserves room for the files of one more sandbox;
// nil without a folder.
func (k *snapshotStore) reserveForPause() func(ctx context.Context, s *v1alpha1.Sandbox) (end func(), err error) {
	if k == nil {
		return nil
	}
	return k.ReserveForPause
}

// rehibernate takes a resume back that has no pod.
func (g *gateway) rehibernate(ctx context.Context, s *v1alpha1.Sandbox) error {
	if g.paused == nil {
		return nil
	}
	return g.paused.Rehibernate(ctx, s.Name, s.UID)
}

// close closes the folder, when no request is answered any more.
func (k *snapshotStore) close() {
	if k != nil {
		_ = k.folder.Close()
	}
}
