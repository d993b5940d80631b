package local

import (
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/local/supervise"
)

// A full disk is named, by `up` before it starts anything and by `status` before its effects.
func TestFullDiskIsNamed(t *testing.T) {
	full := &up{state: newState("/proc"), o: Options{Port: -1}} // no file system of the kernel's has room
	if err := full.prepare(t.Context()); err == nil || !strings.Contains(err.Error(), "the disk of /proc is full") {
		t.Errorf("up: %v", err)
	}
	r := report{now: time.Now(), full: full.room(), Running: Running{Processes: []supervise.Status{{Name: "etcd", Problem: "has ended"}}}}
	if wrong := r.wrong(); len(wrong) != 2 || !strings.Contains(wrong[0], "is full") || !strings.HasPrefix(wrong[1], "etcd") {
		t.Errorf("status: %q", wrong)
	}
	if err := newState(t.TempDir()).room(); err != nil {
		t.Errorf("a folder of this machine: %v", err)
	}
}
