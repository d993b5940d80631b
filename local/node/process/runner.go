package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/local/node/cgroups"
	"github.com/sandlane/sandlane/local/node/images"
	"github.com/sandlane/sandlane/local/node/initspec"
	"github.com/sandlane/sandlane/local/node/network"
	"github.com/sandlane/sandlane/local/node/removal"
	"github.com/sandlane/sandlane/local/node/rootfs"
)

// Runner starts processes, with or without isolation. Safe for concurrent use.
type Runner struct {
	dir      string   // the node's folder
	helper   string   // podinit, in memory
	sealed   *os.File // what helper names
	launcher *launcher
	roots    *rootfs.Machine // nil without isolation
	cgroups  *cgroups.Groups
}

// Spec is one run of a container, resolved.
type Spec struct {
	PodName   string
	PodUID    types.UID
	Container string
	Attempt   int32
	Args      []string
	Env       []string
	Dir       string
	UID, GID  int
	Image     images.Entry
	Resources corev1.ResourceRequirements
	Mounts    []initspec.Bind // volumes
	Resolv    string          // its /etc/resolv.conf, with isolation; empty: no name servers
	ReadOnly  bool            // nothing can be written to its root, with isolation
	Log       *os.File
}

// NewRunner returns a runner that keeps the folders of containers below dir; helper is the file of
// podinit. roots and groups are nil without isolation.
func NewRunner(helper, dir string, roots *rootfs.Machine, groups *cgroups.Groups) (*Runner, error) {
	r := &Runner{dir: dir, helper: helper, roots: roots, cgroups: groups}
	if err := r.sealHelper(); err != nil {
		return nil, fmt.Errorf("load the helper program: %w", err)
	}
	r.launcher = newLauncher()
	return r, nil
}

// Close ends every process that still runs.
func (r *Runner) Close() {
	r.launcher.close()
	_ = r.sealed.Close()
}

// Start runs the container's command. After an error nothing runs.
func (r *Runner) Start(ctx context.Context, net network.Pod, s Spec) (*Process, error) {
	p := &Process{spec: s, runner: r, Exited: make(chan struct{})}
	a := launch{helper: r.helper, stdout: s.Log, stderr: s.Log}
	a.spec = initspec.Spec{Args: s.Args, Env: s.Env, Dir: s.Dir, UID: s.UID, GID: s.GID}
	if isolated, ok := net.(*network.Isolated); ok {
		p.dir = filepath.Join(r.dir, "pods", string(s.PodUID), fmt.Sprintf("%s-%d", s.Container, s.Attempt))
		if s.Image.Root == "" && !s.ReadOnly {
			a.spec.Env = append(slices.Clone(s.Env), rootfs.LayerVariable+"="+strings.Join(rootfs.OwnFolders, ":"))
		}
		root, err := r.roots.Root(p.dir, rootfs.Container{PodName: s.PodName, Addr: isolated.Addr(), Image: s.Image, Mounts: s.Mounts, Resolv: s.Resolv, ReadOnly: s.ReadOnly})
		if err != nil {
			_ = removal.Tree(p.dir)
			return nil, err
		}
		if s.ReadOnly {
			root.Dirs = append(root.Dirs, s.Dir) // podinit cannot make it any more
		}
		p.cgroup = r.cgroups.Make(string(s.PodUID)+"_"+s.Container, s.Resources)
		root.Binds = append(root.Binds, p.cgroup.Binds()...)
		a.spec.Root, a.spec.NetNS, a.spec.Cgroups = root, initspec.FirstFD, p.cgroup.Procs()
		a.spec.KeepCaps, a.spec.NoNewPrivs, a.spec.NoUserNamespaces = KeptCaps, true, true
		a.cloneFlags = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
		ns, err := isolated.File()
		if err != nil {
			p.cgroup.Remove()
			_ = removal.Tree(p.dir)
			return nil, err
		}
		a.files = []*os.File{ns}
		p.ns = a.files
		a.held = func(pid int) error { // the command may end before its start is known
			more, err := openNamespaces(pid)
			p.ns = append(p.ns, more...)
			return err
		}
	}
	cmd, err := r.launcher.run(ctx, a)
	if err != nil {
		closeAll(p.ns...)
		p.cgroup.Remove()
		if p.dir != "" {
			_ = removal.Tree(p.dir)
		}
		return nil, err
	}
	p.cmd, p.Started = cmd, time.Now()
	go p.watch()
	return p, nil
}

// sealHelper copies podinit to memory that cannot be changed any more. A container's root finds it
// as /proc/PID/exe of a process that enters the container, and could write to a file.
func (r *Runner) sealHelper() error {
	program, err := os.ReadFile(r.helper)
	if err != nil {
		return err
	}
	fd, err := unix.MemfdCreate("podinit", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return fmt.Errorf("make a file in memory: %w", err)
	}
	r.sealed = os.NewFile(uintptr(fd), "podinit")
	if _, err := r.sealed.Write(program); err != nil {
		return err
	}
	seals := unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("seal it: %w", err)
	}
	r.helper = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
	return nil
}
