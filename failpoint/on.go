//go:build failpoints

package failpoint

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const variable = "SANDLANE_FAILPOINTS"

// folder is where this process's points are armed; empty arms none.
var folder = os.Getenv(variable)

// Hit does what the point's file says; nothing if there is none.
func Hit(point string) {
	if folder == "" {
		return
	}
	file := path(point)
	for {
		text, err := os.ReadFile(file)
		if err != nil {
			return
		}
		switch strings.TrimSpace(string(text)) {
		case "kill":
			// Of several goroutines at the point, one wins the rename; the
			// others may go on for the moment that the signal takes.
			if os.Rename(file, file+".hit") != nil {
				return
			}
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		case "hold":
			time.Sleep(10 * time.Millisecond)
		default:
			return
		}
	}
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
