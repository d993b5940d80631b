package node

import (
	"errors"
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
	if !c.v2 {
		return c.bases["freezer"] != ""
	}
	base, ok := c.bases[""]
	_, err := os.Stat(filepath.Join(base, "cgroup.freeze"))
	return ok && err == nil
}

// thaw lets the processes of a group's folder run. It does nothing in the folder of a
// controller other than the freezer, which has neither file.
func thaw(dir string) error {
	var errs []error
	for name, value := range map[string]string{"freezer.state": "THAWED", "cgroup.freeze": "0"} {
		if err := tell(filepath.Join(dir, name), value); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// tell writes to a file of the kernel's, which must be there.
func tell(name, value string) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
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
	controller, file, value := "freezer", "freezer.state", "FROZEN"
	if g.v2 {
		controller, file, value = "", "cgroup.freeze", "1"
	}
	dir, ok := g.dirs[controller]
	if !ok {
		return errors.New("the container's control group has no freezer")
	}
	return tell(filepath.Join(dir, file), value)
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
	frozen bool       // a freeze was tried, and no thaw has succeeded since
	ending bool
	tried  int // how many freezes were tried
}

// freeze freezes the group; one that is frozen stays so.
func (f *freezer) freeze(g *cgroup) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ending {
		return errors.New("the container is ending")
	}
	f.frozen = true
	f.tried++
	return g.freeze()
}

// thaw thaws the group; after an error another thaw tries again.
func (f *freezer) thaw(g *cgroup) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.frozen {
		return nil
	}
	err := g.thaw()
	f.frozen = err != nil
	return err
}

// end thaws the group for good.
func (f *freezer) end(g *cgroup) error {
	f.mu.Lock()
	f.ending = true
	f.mu.Unlock()
	return f.thaw(g)
}

// look reports how many freezes were tried so far, and whether the group may be frozen.
func (f *freezer) look() (tried int, frozen bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tried, f.frozen
}
