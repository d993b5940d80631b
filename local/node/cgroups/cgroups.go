// Package cgroups limits the local node's containers by control groups, of version 1 or 2, as
// far as the machine lets it. The node opens its Groups once and makes one Group a container;
// after a node that was killed RemoveAll ends what is left. It says nothing to Kubernetes.
package cgroups

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sandlane/sandlane/local/node/initspec"
)

// mounted is where the machine's controllers are mounted.
const mounted = "/sys/fs/cgroup"

// Groups makes limits where the machine lets it; all of it is optional, and a nil value makes
// none. Version 1 has a tree per controller, version 2 one. Safe for concurrent use.
type Groups struct {
	v2    bool
	bases map[string]string // controller → this node's folder; one entry "" for version 2
}

// folder is the name of a node's folder in each tree; hash tells nodes of one machine apart.
func folder(hash string) string { return "sandlane-" + hash }

// Open returns the groups of the node with this hash, and makes their folders.
func Open(hash string) *Groups { return openAt(mounted, hash) }

func openAt(root, hash string) *Groups {
	c := &Groups{bases: map[string]string{}}
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		c.v2 = true
		base := filepath.Join(root, folder(hash))
		delegate(root)
		if err := os.Mkdir(base, 0o755); err == nil || errors.Is(err, os.ErrExist) {
			delegate(base)
			c.bases[""] = base
		}
		return c
	}
	// cpuacct only counts; where it is mounted together with cpu its folder is
	// there already.
	for _, controller := range []string{"memory", "cpu", "cpuacct", "pids"} {
		base := filepath.Join(root, controller, folder(hash))
		if err := os.Mkdir(base, 0o755); err == nil || errors.Is(err, os.ErrExist) {
			c.bases[controller] = base
		}
	}
	return c
}

// delegate lets the groups below dir have limits: one controller a write, since a
// write with one that the machine lacks does nothing.
func delegate(dir string) {
	for _, controller := range []string{"+memory", "+cpu", "+pids"} {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(controller), 0)
	}
}

// maxPids bounds the processes and threads of one container: enough for a build or
// a browser, and so few that a fork bomb leaves the machine's other processes theirs.
const maxPids = 4096

// Group is the group of one container; nil is a container without one. Safe for concurrent use.
type Group struct {
	v2   bool
	dirs map[string]string // as bases
}

// Make makes the group with the container's limits. What cannot be had is left out.
func (c *Groups) Make(name string, r corev1.ResourceRequirements) *Group {
	if c == nil {
		return nil
	}
	g := &Group{v2: c.v2, dirs: map[string]string{}}
	for controller, base := range c.bases {
		dir := filepath.Join(base, name)
		if err := os.Mkdir(dir, 0o755); err == nil || errors.Is(err, os.ErrExist) {
			g.dirs[controller] = dir
		}
	}
	set := func(controller, file, value string) {
		if dir, ok := g.dirs[controller]; ok {
			_ = os.WriteFile(filepath.Join(dir, file), []byte(value), 0)
		}
	}
	pids := "pids"
	if c.v2 {
		pids = ""
	}
	set(pids, "pids.max", strconv.Itoa(maxPids))
	if limit := r.Limits.Memory().Value(); limit > 0 {
		if c.v2 {
			set("", "memory.max", strconv.FormatInt(limit, 10))
			set("", "memory.swap.max", "0")
		} else {
			set("memory", "memory.limit_in_bytes", strconv.FormatInt(limit, 10))
			set("memory", "memory.memsw.limit_in_bytes", strconv.FormatInt(limit, 10))
		}
	}
	const period = 100_000 // µs
	if limit := r.Limits.Cpu().MilliValue(); limit > 0 {
		if c.v2 {
			set("", "cpu.max", fmt.Sprintf("%d %d", limit*period/1000, period))
		} else {
			set("cpu", "cpu.cfs_period_us", strconv.Itoa(period))
			set("cpu", "cpu.cfs_quota_us", strconv.FormatInt(limit*period/1000, 10))
		}
	}
	if shares := r.Requests.Cpu().MilliValue() * 1024 / 1000; shares > 1 {
		if c.v2 {
			set("", "cpu.weight", strconv.FormatInt(max(1, min(10000, shares*100/1024)), 10))
		} else {
			set("cpu", "cpu.shares", strconv.FormatInt(shares, 10))
		}
	}
	return g
}

// Procs are the files through which a process enters the group.
func (g *Group) Procs() (files []string) {
	if g != nil {
		for _, dir := range g.dirs {
			files = append(files, filepath.Join(dir, "cgroup.procs"))
		}
	}
	return files
}

// Binds show the group inside the container where a container runtime would:
// what runs there reads its own use and limits, and cannot write.
func (g *Group) Binds() (binds []initspec.Bind) {
	if g != nil {
		for controller, dir := range g.dirs {
			binds = append(binds, initspec.Bind{Source: dir, Target: shownAt(controller), ReadOnly: true})
		}
	}
	return binds
}

// MountPoints are where containers see their groups.
func (c *Groups) MountPoints() (dirs []string) {
	for controller := range c.bases {
		dirs = append(dirs, shownAt(controller))
	}
	return dirs
}

func shownAt(controller string) string { return filepath.Join(mounted, controller) }

// OOMKilled reports whether the kernel killed a process of the group for memory.
func (g *Group) OOMKilled() bool {
	if g == nil {
		return false
	}
	if g.v2 {
		return Counter(filepath.Join(g.dirs[""], "memory.events"), "oom_kill") > 0
	}
	return Counter(filepath.Join(g.dirs["memory"], "memory.oom_control"), "oom_kill") > 0
}

// Counter returns the value of a key in a file of "key value" lines, as the kernel's are; 0 if
// it has none.
func Counter(file, key string) int64 {
	f, err := os.Open(file)
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) > 1 && words[0] == key {
			n, _ := strconv.ParseInt(words[1], 10, 64)
			return n
		}
	}
	return 0
}

// Remove deletes the group; its processes are dead, but the kernel may need a
// moment to see that.
func (g *Group) Remove() {
	if g != nil {
		for _, dir := range g.dirs {
			removeGroup(dir)
		}
	}
}

func removeGroup(dir string) {
	_ = wait.ExponentialBackoff(wait.Backoff{Duration: time.Millisecond, Factor: 2, Steps: 11}, func() (bool, error) {
		err := os.Remove(dir)
		return err == nil || errors.Is(err, os.ErrNotExist), nil
	})
}

// RemoveAll kills what is in the groups of the node with this hash, and removes them.
func RemoveAll(hash string) {
	bases, _ := filepath.Glob(filepath.Join(mounted, "*", folder(hash)))
	bases = append(bases, filepath.Join(mounted, folder(hash)))
	for _, base := range bases {
		groups, _ := filepath.Glob(filepath.Join(base, "*", "cgroup.procs"))
		for _, file := range groups {
			raw, _ := os.ReadFile(file)
			for _, pid := range strings.Fields(string(raw)) {
				if n, err := strconv.Atoi(pid); err == nil {
					_ = syscall.Kill(n, syscall.SIGKILL)
				}
			}
			removeGroup(filepath.Dir(file))
		}
		removeGroup(base)
	}
}
