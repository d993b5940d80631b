package cgroups

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestVersion2 uses recorded files: the machine may have version 1.
func TestVersion2(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "cgroup.controllers"), []byte("cpu memory\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := openAt(root, "abc").Make("pod_main", corev1.ResourceRequirements{})
	if raw, err := os.ReadFile(filepath.Join(root, "sandlane-abc", "pod_main", "pids.max")); string(raw) != "4096" {
		t.Errorf("the limit of processes is %q, %v", raw, err)
	}
	if g.OOMKilled() {
		t.Error("without events there was a kill")
	}
	events := "low 0\nhigh 0\nmax 31\noom 2\noom_kill 1\noom_group_kill 0\n"
	dir := filepath.Join(root, "sandlane-abc", "pod_main")
	if err := os.WriteFile(filepath.Join(dir, "memory.events"), []byte(events), 0o600); err != nil {
		t.Fatal(err)
	}
	if !g.OOMKilled() || !slices.Equal(g.Procs(), []string{filepath.Join(dir, "cgroup.procs")}) {
		t.Errorf("kill %v, procs %v", g.OOMKilled(), g.Procs())
	}
	var none *Groups
	if none.Make("x", corev1.ResourceRequirements{}).OOMKilled() {
		t.Error("no group, but a kill")
	}
}
