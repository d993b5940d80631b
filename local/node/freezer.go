package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// A frozen group runs nothing until it is thawed. With version 1 even SIGKILL waits until
// then, so whatever is to end the processes of a group thaws it first.

// canFreeze reports whether the groups made from c can be frozen.
func (c *cgroups) canFreeze() bool {
	if c == nil {
		return false
	}
	if c.v2 {
		_, err := os.Stat(filepath.Join(c.bases[""], "cgroup.freeze"))
		return err == nil
	}
	return c.bases["freezer"] != ""
}

// thaw lets the processes of a group's folder run; it does nothing in the folders of
// controllers that have no freezer.
func thaw(dir string) error {
	var errs []error
	for file, value := range map[string]string{"freezer.state": "THAWED", "cgroup.freeze": "0"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("thaw %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

// thaw lets the group's processes run.
func (g *cgroup) thaw() error {
	var errs []error
	for _, dir := range g.dirs {
		errs = append(errs, thaw(dir))
	}
	return errors.Join(errs...)
}

// freeze has the kernel stop the group's processes, each where it next returns from the
// kernel: frozen says when all are stopped.
func (g *cgroup) freeze() error {
	if g.v2 {
		return os.WriteFile(filepath.Join(g.dirs[""], "cgroup.freeze"), []byte("1"), 0)
	}
	return os.WriteFile(filepath.Join(g.dirs["freezer"], "freezer.state"), []byte("FROZEN"), 0)
}

// frozen reports whether all processes of the group are stopped.
func (g *cgroup) frozen() bool {
	if g.v2 {
		return counter(filepath.Join(g.dirs[""], "cgroup.events"), "frozen") == 1
	}
	raw, err := os.ReadFile(filepath.Join(g.dirs["freezer"], "freezer.state"))
	return err == nil && strings.TrimSpace(string(raw)) == "FROZEN"
}

// freezer freezes and thaws one run of a container. Safe for concurrent use; the zero value
// is one that was never frozen.
//
//	running ─freeze─▶ frozen ─thaw─▶ running
//	   └────────┬────────┘
//	            └─end─▶ ending: it runs until it ends, and is not frozen again
type freezer struct {
	mu     sync.Mutex // guards the rest, and is held while the group's state is written
	frozen bool       // a freeze was written, and no thaw since
	ending bool
}

// set freezes the group or thaws it.
func (f *freezer) set(g *cgroup, frozen bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case g == nil || f.frozen == frozen:
		return nil
	case !frozen:
		f.frozen = false
		return g.thaw()
	case f.ending:
		return errors.New("the container is ending")
	}
	f.frozen = true // also if the write fails: what is thawed once too often runs
	return g.freeze()
}

// end thaws the group for good.
func (f *freezer) end(g *cgroup) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ending = true
	if g == nil || !f.frozen {
		return nil
	}
	f.frozen = false
	return g.thaw()
}

// isFrozen reports whether the group was frozen and not thawed since.
func (f *freezer) isFrozen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.frozen
}
