package usage

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const meminfo = "MemTotal:  1000 kB\nMemFree: 100 kB\nMemAvailable: 400 kB\nCached: 50 kB\n"

func TestVersions(t *testing.T) {
	proc := tree(t, map[string]string{"meminfo": meminfo})
	for name, c := range map[string]struct {
		files              map[string]string
		total, used, cache uint64
	}{
		"version 2": {map[string]string{"cpu.max": "50000 100000\n", "cpu.stat": "usage_usec 1000000\n", "memory.current": "5000", "memory.max": "8000", "memory.stat": "anon 1\ninactive_file 1500\n"}, 8000, 3500, 1500},
		"no limit":  {map[string]string{"cpu.max": "max 100000\n", "memory.current": "5000", "memory.max": "max", "memory.stat": ""}, 1000 << 10, 5000, 0},
		"version 1": {map[string]string{"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000", "memory/memory.usage_in_bytes": "600", "memory/memory.limit_in_bytes": "9223372036854771712", "memory/memory.stat": "total_inactive_file 100\n"}, 1000 << 10, 500, 100},
		"none":      {nil, 1000 << 10, 600 << 10, 50 << 10},
	} {
		m := Meter{Cgroup: tree(t, c.files), Proc: proc}
		got := m.Measure()
		if got.MemTotal != c.total || got.MemUsed != c.used || got.MemCache != c.cache {
			t.Errorf("%s: %+v", name, got)
		}
		if got.CPUCount < 1 || got.DiskTotal == 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestCPUShare(t *testing.T) {
	dir := tree(t, map[string]string{"cpu.max": "100000 100000", "cpu.stat": "usage_usec 1000000\n"})
	now := time.Unix(100, 0)
	m := Meter{Cgroup: dir, Now: func() time.Time { return now }}
	if got := m.Measure(); got.CPUUsedPct != 0 || got.CPUCount != 1 {
		t.Errorf("first: %+v", got)
	}
	now = now.Add(2 * time.Second)
	if err := os.WriteFile(filepath.Join(dir, "cpu.stat"), []byte("usage_usec 1500000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := m.Measure().CPUUsedPct; got != 25 {
		t.Errorf("half a second of two = %v %%", got)
	}
}
