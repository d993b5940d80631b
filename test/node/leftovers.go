package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	groupRoot = "/sys/fs/cgroup"
	// cleanTimeout is how long killed processes may take to leave their control
	// groups.
	cleanTimeout = 30 * time.Second
)

// groups are a node's folders in the hierarchies of control groups, one in each.
func groups(name string) []string {
	dirs, _ := filepath.Glob(filepath.Join(groupRoot, "*", name)) // the pattern is good
	if _, err := os.Stat(filepath.Join(groupRoot, name)); err == nil {
		dirs = append(dirs, filepath.Join(groupRoot, name))
	}
	return dirs
}

// removeGroups removes the control groups of a node whose processes are dead or
// about to be.
func removeGroups(name string) error {
	deadline := time.Now().Add(cleanTimeout)
	for {
		var errs []error
		for _, dir := range groups(name) {
			errs = append(errs, removeTree(dir))
		}
		err := errors.Join(errs...)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("control groups: %w", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// removeTree removes folders, the deepest first. It need not remove the files in them, which
// the kernel makes.
func removeTree(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	for i := len(dirs) - 1; err == nil && i >= 0; i-- {
		if err = os.Remove(dirs[i]); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return err
}

// removeLeftovers removes the state folders of nodes whose keeper was killed: those that no
// process names in its environment. It ignores errors.
func removeLeftovers() {
	states, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*")) // the pattern is good
	for _, state := range states {
		if !inUse(state) {
			_ = removeGroups(filepath.Base(state))
			_ = os.RemoveAll(state)
		}
	}
}

// inUse reports whether a keeper or an init uses this state folder. A folder that a Start
// has just made has neither yet, so a new folder counts as in use.
func inUse(state string) bool {
	if info, err := os.Stat(state); err != nil || time.Since(info.ModTime()) < time.Minute {
		return true
	}
	environments, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is good
	for _, file := range environments {
		text, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(text), stateEnv+"="+state+"\x00") {
			return true
		}
	}
	return false
}
