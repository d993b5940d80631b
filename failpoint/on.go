//go:build failpoints

package failpoint

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const variable = "SANDLANE_FAILPOINTS"

// folder is where this process's points are armed; empty arms none.
var folder = os.Getenv(variable)

// mu makes of reading what a point is to do, and doing it, one step: while a
// process kills itself at one point, no goroutine of it gets past another.
var mu sync.Mutex

// Hit does what the point's file says; nothing if there is none.
func Hit(point string) {
	if folder == "" {
		return
	}
	file := path(point)
	if !held(file) {
		return
	}
	_ = os.WriteFile(file+".held", nil, 0o600) // a test that waits for it fails if it is missing
	for held(file) {
		time.Sleep(10 * time.Millisecond)
	}
}

// held reports whether the caller is to wait and look again.
func held(file string) bool {
	mu.Lock()
	defer mu.Unlock()
	text, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	switch strings.TrimSpace(string(text)) {
	case "kill":
		if os.Rename(file, file+".hit") != nil {
			return false // disarmed meanwhile
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // with mu held
	case "hold":
		return true
	}
	return false
}

// Delay returns how long the point is to be delayed at this moment.
func Delay(point string) time.Duration {
	if folder == "" {
		return 0
	}
	text, err := os.ReadFile(path(point))
	if err != nil {
		return 0
	}
	value, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "delay ")
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return 0
	}
	return d
}

// Env is what a child called name needs in its environment to find its points.
func Env(name string) []string {
	if folder == "" {
		return nil
	}
	return []string{variable + "=" + filepath.Join(folder, name)}
}

// path is the point's file: its slashes are folders.
func path(point string) string { return filepath.Join(folder, filepath.FromSlash(point)) }
