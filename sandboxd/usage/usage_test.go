package usage

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandlane/sandlane/test/bubble"
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

// cpu is a control group of one processor, of which use is read and set.
type cpu struct {
	t   *testing.T
	dir string
}

func newCPU(t *testing.T) cpu {
	return cpu{t, tree(t, map[string]string{"cpu.max": "100000 100000", "cpu.stat": "usage_usec 1000000\n"})}
}

func (c cpu) used(d time.Duration) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, "cpu.stat"), fmt.Appendf(nil, "usage_usec %d\n", d.Microseconds()), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// ask returns what GET /metrics answers.
func ask[T any](t *testing.T, m *Meter, query string) (answer T) {
	t.Helper()
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics"+query, nil))
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%s: %v", w.Body, err)
	}
	return answer
}

// The first answer has a share of the processor already, also after a long silence.
func TestFirstShare(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCPU(t)
		m := &Meter{Cgroup: c.dir}
		defer m.Close()
		for _, what := range []string{"first", "after a silence"} {
			c.used(10 * time.Second)
			time.AfterFunc(firstOver/2, func() { c.used(10*time.Second + firstOver/4) })
			began := time.Now()
			if got := ask[Metrics](t, m, ""); got.CPUUsedPct != 25 || got.CPUCount != 1 {
				t.Errorf("%s: %+v, want 25 %%", what, got)
			}
			if took := time.Since(began); took != firstOver {
				t.Errorf("%s: it took %v", what, took)
			}
			began = time.Now()
			if got := ask[Metrics](t, m, ""); got.CPUUsedPct != 25 || time.Since(began) != 0 {
				t.Errorf("right after the %s: %+v in %v", what, got, time.Since(began))
			}
			time.Sleep(2 * sampleFor)
		}
	})
}

// Samples are taken every five seconds for an hour after a question, and kept for an
// hour.
func TestHistory(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCPU(t)
		m := &Meter{Cgroup: c.dir}
		defer m.Close()
		time.Sleep(time.Hour) // nothing asks
		if all := ask[[]Metrics](t, m, "?history"); len(all) != 1 {
			t.Errorf("before anything was asked: %d samples", len(all))
		}
		began := time.Now()
		for i := range 10 {
			c.used(time.Second + time.Duration(i)*sampleEvery/2)
			time.Sleep(sampleEvery)
		}
		all := ask[[]Metrics](t, m, "?history")
		if len(all) < 10 || len(all) > 11 {
			t.Errorf("%d samples of 50 s", len(all))
		}
		for i, s := range all[2 : len(all)-1] {
			if s.TS != all[i+1].TS+5 || s.CPUUsedPct != 50 {
				t.Errorf("sample %d is %+v after %+v", i+2, s, all[i+1])
			}
		}
		for range 3 { // somebody asks on
			time.Sleep(sampleFor / 2)
			all = ask[[]Metrics](t, m, "?history")
		}
		if n, most := len(all), int(sampleFor/sampleEvery)+1; n < most-1 || n > most || all[0].TS < began.Unix() {
			t.Errorf("%d samples are kept, want those of an hour", n)
		}
		time.Sleep(2 * sampleFor)
		synctest.Wait()
		if m.sampler != nil {
			t.Error("samples are taken though nothing has asked for two hours")
		}
	})
}
