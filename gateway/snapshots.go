package gateway

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/checkpoint"
	"github.com/sandlane/sandlane/controlplane/e2b"
	"github.com/sandlane/sandlane/gateway/agent"
	"github.com/sandlane/sandlane/gateway/index"
	"github.com/sandlane/sandlane/gateway/sandboxes"
	"github.com/sandlane/sandlane/gateway/snapshots"
)

// keptFiles are the snapshots of this gateway and their folder; nil without one.
type keptFiles struct {
	folder *checkpoint.Folder
	*snapshots.Snapshots
}

func (g *gateway) openSnapshots(c client.Client, live *index.Live, a *agent.Agent) (*keptFiles, error) {
	metrics := snapshots.NewMetrics(g.reg) // also without a folder: alerts and dashboards name them
	if g.o.CheckpointDir == "" {
		return nil, nil
	}
	folder, err := checkpoint.OpenFolder(g.o.CheckpointDir, g.o.MaxCheckpointBytes)
	if err != nil {
		return nil, fmt.Errorf("checkpoint folder: %w", err)
	}
	return &keptFiles{folder, snapshots.New(snapshots.Options{
		API: c, Live: live, Pods: agent.NewPods(c, g.cache), Agent: a, Store: folder, Exceeded: quota{}.Exceeded,
		MaxInNamespace: g.o.MaxSnapshots, MaxByKey: g.o.MaxSnapshotsPerKey, Metrics: metrics, Log: g.o.Log,
	})}, nil
}

// backend returns what the REST API keeps and lists snapshots with; nil without a folder.
func (k *keptFiles) backend() e2b.Snapshots {
	if k == nil {
		return nil
	}
	return k.Snapshots
}

// restorer returns what the REST API's create restores files with; nil without a folder.
func (k *keptFiles) restorer() func(ctx context.Context, namespace, snapshot string) (sandboxes.Restorer, error) {
	if k == nil {
		return nil
	}
	return func(ctx context.Context, namespace, snapshot string) (sandboxes.Restorer, error) {
		r, err := k.Restorer(ctx, namespace, snapshot)
		if err != nil {
			return nil, err
		}
		return r, nil
	}
}

// reserveForPause returns the function that reserves room for the files of one more sandbox;
// nil without a folder.
func (k *keptFiles) reserveForPause() func(ctx context.Context, s *v1alpha1.Sandbox) (end func(), err error) {
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
func (k *keptFiles) close() {
	if k != nil {
		_ = k.folder.Close()
	}
}
