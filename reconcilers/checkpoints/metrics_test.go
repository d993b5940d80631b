package checkpoints

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// What is kept is counted as it is now, however often it is looked at, and no more once
// it is gone.
func TestMetrics(t *testing.T) {
	first := one("a", v1alpha1.CheckpointStatus{Phase: v1alpha1.CheckpointSucceeded, Bytes: 5})
	first.Spec.Cause = v1alpha1.CheckpointSnapshot
	second := one("b", v1alpha1.CheckpointStatus{Phase: v1alpha1.CheckpointSucceeded, Bytes: 7})
	second.Spec.Cause, second.Spec.SandboxID, second.Spec.SandboxUID = v1alpha1.CheckpointPause, "s", "u"
	rests := &v1alpha1.Sandbox{Spec: v1alpha1.SandboxSpec{Paused: true, Restore: &v1alpha1.Restore{Checkpoint: "b"}}}
	rests.Name, rests.UID, rests.Spec.Namespace = "s", "u", "ns"
	third := one("c", v1alpha1.CheckpointStatus{})
	third.Spec.Cause = v1alpha1.CheckpointSnapshot
	w := newWorld(t, first, second, third, rests)
	reg := prometheus.NewRegistry()
	w.r.Metrics = NewMetrics(reg)
	want := func(what string, snapshots, snapshotBytes, pauses, pauseBytes, pending int) {
		t.Helper()
		text := fmt.Sprintf(`
# HELP sandlane_checkpoint_bytes Bytes of checkpoints' data in the store, by cause.
# TYPE sandlane_checkpoint_bytes gauge
sandlane_checkpoint_bytes{cause="Pause"} %d
sandlane_checkpoint_bytes{cause="Snapshot"} %d
# HELP sandlane_checkpoint_objects Checkpoints that exist, by cause and phase.
# TYPE sandlane_checkpoint_objects gauge
sandlane_checkpoint_objects{cause="Pause",phase="Failed"} 0
sandlane_checkpoint_objects{cause="Pause",phase="Succeeded"} %d
sandlane_checkpoint_objects{cause="Pause",phase="Terminating"} 0
sandlane_checkpoint_objects{cause="Snapshot",phase="Failed"} 0
sandlane_checkpoint_objects{cause="Snapshot",phase="Pending"} %d
sandlane_checkpoint_objects{cause="Snapshot",phase="Succeeded"} %d
sandlane_checkpoint_objects{cause="Snapshot",phase="Terminating"} 0
`, pauseBytes, snapshotBytes, pauses, pending, snapshots)
		if err := testutil.GatherAndCompare(reg, strings.NewReader(text)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		w.reconcile(name)
	}
	want("all", 1, 5, 1, 7, 1)
	if err := w.client.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	w.reconcile("a")
	want("one is gone", 0, 0, 1, 7, 1)
}
