// Package usage measures how much processor, memory and disk the sandbox uses, by the
// control group that it is in (version 1 or 2), or by the figures of the machine. A Meter
// serves GET /metrics of E2B's envd protocol; package sandboxd routes that to it.
//
// From the first request on, until an hour after the last one, a Meter takes a sample every
// five seconds and keeps those of the last hour, some 50 kB; before the first request it
// costs nothing. sandboxd keeps the samples and not a gateway, so that all gateways return the
// same history of a sandbox, and it ends with the sandbox.
//
// The package does not measure sandboxd itself and exports nothing to Prometheus.
package usage

import (
	"cmp"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Metrics is one measurement in the form that SDKs and the gateway read.
type Metrics struct {
	TS         int64   `json:"ts"`           // seconds since 1970
	CPUCount   int     `json:"cpu_count"`    // processors that may be used, rounded up
	CPUUsedPct float32 `json:"cpu_used_pct"` // of those, 0 to 100, since the last measurement
	MemTotal   uint64  `json:"mem_total"`    // bytes
	MemUsed    uint64  `json:"mem_used"`     // bytes, without caches that can be dropped
	MemCache   uint64  `json:"mem_cache"`    // bytes
	DiskUsed   uint64  `json:"disk_used"`    // bytes, of the file system measured
	DiskTotal  uint64  `json:"disk_total"`   // bytes
}

// Meter measures. Its zero value measures this sandbox; it is safe for
// concurrent use.
type Meter struct {
	// Cgroup is the folder where control groups are mounted; empty means /sys/fs/cgroup.
	Cgroup string
	// Proc is the folder with the machine's figures; empty means /proc.
	Proc string
	// Disk is a folder on the file system to measure; empty means the root.
	Disk string
	// Now is time.Now if nil.
	Now func() time.Time

	mu       sync.Mutex // guards the rest
	last     time.Time  // when the processor time was last read
	used     time.Duration
	pct      float32
	measured bool // pct is of a measurement

	asked   time.Time   // the time of the last request
	samples []Metrics   // one each 5 s, of an hour at most, oldest first
	sampler *time.Timer // of the next sample; nil while no samples are taken
	closed  bool
}

// minInterval is the shortest time over which a share of the processor is measured.
const minInterval = 100 * time.Millisecond

// ServeHTTP answers with the present use or, if the query has "history", with the list that
// History returns.
func (m *Meter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	var answer any
	if r.URL.Query().Has("history") {
		answer = m.History(r.Context())
	} else {
		answer = m.Present(r.Context())
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// Measure returns the present use. What cannot be read is zero.
func (m *Meter) Measure() Metrics {
	at := m.now()
	metrics := Metrics{TS: at.Unix(), CPUCount: m.cpus()}
	metrics.CPUUsedPct = m.cpuShare(at, metrics.CPUCount)
	metrics.MemTotal, metrics.MemUsed, metrics.MemCache = m.memory()
	var disk unix.Statfs_t
	if unix.Statfs(cmp.Or(m.Disk, "/"), &disk) == nil {
		metrics.DiskTotal = disk.Blocks * uint64(disk.Bsize)
		metrics.DiskUsed = (disk.Blocks - disk.Bfree) * uint64(disk.Bsize)
	}
	return metrics
}

func (m *Meter) now() time.Time {
	if m.Now != nil {
		return m.Now()
	}
	return time.Now()
}

func (m *Meter) cpuShare(at time.Time, cpus int) float32 {
	used := m.cpuTime()
	m.mu.Lock()
	defer m.mu.Unlock()
	elapsed := at.Sub(m.last)
	if !m.last.IsZero() && elapsed < minInterval {
		return m.pct
	}
	if !m.last.IsZero() && used >= m.used {
		m.pct = min(100, float32(used-m.used)/float32(elapsed)/float32(cpus)*100)
		m.measured = true
	}
	m.last, m.used = at, used
	return m.pct
}

// cpus returns the number of processors: the limit of the control group, else the machine's.
func (m *Meter) cpus() int {
	quota, period := int64(0), int64(0)
	if f := strings.Fields(m.cgroup("cpu.max")); len(f) == 2 {
		quota, period = number(f[0]), number(f[1])
	} else {
		quota, period = number(m.cgroup("cpu/cpu.cfs_quota_us")), number(m.cgroup("cpu/cpu.cfs_period_us"))
	}
	if quota <= 0 || period <= 0 {
		return runtime.NumCPU()
	}
	return min(runtime.NumCPU(), int((quota+period-1)/period))
}

func (m *Meter) cpuTime() time.Duration {
	if v2 := m.cgroup("cpu.stat"); v2 != "" {
		return time.Duration(field(v2, "usage_usec")) * time.Microsecond
	}
	return time.Duration(number(m.cgroup("cpuacct/cpuacct.usage")))
}

func (m *Meter) memory() (total, used, cache uint64) {
	info := m.read(m.Proc, "/proc", "meminfo")
	total = uint64(field(info, "MemTotal:")) << 10
	available := uint64(field(info, "MemAvailable:")) << 10
	used = total - min(total, available)
	cache = uint64(field(info, "Cached:")) << 10
	current, limit, stat := m.cgroup("memory.current"), m.cgroup("memory.max"), "memory.stat"
	inactive := "inactive_file"
	if current == "" {
		current, limit = m.cgroup("memory/memory.usage_in_bytes"), m.cgroup("memory/memory.limit_in_bytes")
		stat, inactive = "memory/memory.stat", "total_inactive_file"
	}
	if current == "" {
		return total, used, cache
	}
	cache = uint64(max(0, field(m.cgroup(stat), inactive)))
	all := uint64(max(0, number(current)))
	used = all - min(all, cache)
	if most := number(limit); most > 0 && uint64(most) < total {
		total = uint64(most) // version 1 writes a huge number for none, version 2 "max"
	}
	return total, used, cache
}

func (m *Meter) cgroup(name string) string { return m.read(m.Cgroup, "/sys/fs/cgroup", name) }

func (m *Meter) read(dir, otherwise, name string) string {
	if dir == "" {
		dir = otherwise
	}
	text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// field returns the number after a name at the beginning of a line.
func field(text, name string) int64 {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == name {
			return number(f[1])
		}
	}
	return 0
}

func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
