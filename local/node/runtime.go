package node

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/local/node/initspec"
)

// podRuntime opens networks and starts processes, with or without isolation.
// Safe for concurrent use.
type podRuntime struct {
	opts     Options
	hash     string
	dir      string // the node's part of the state folder
	helper   string // podinit
	addrs    *addresses
	bridge   *bridge // nil without isolation
	launcher *launcher
	cgroups  *cgroups
	metrics  *Metrics
	masks    []string
	binds    []initspec.Bind // of the machine, the same for all containers
	links    map[string]string
}

// processSpec is one run of a container, resolved.
type processSpec struct {
	podName   string
	podUID    types.UID
	container string
	attempt   int32
	args      []string
	env       []string
	dir       string
	uid, gid  int
	image     Image
	resources corev1.ResourceRequirements
	mounts    []initspec.Bind // volumes
	log       *os.File
}

func newRuntime(opts Options) (*podRuntime, error) {
	rt := &podRuntime{
		opts: opts, hash: stateHash(opts.StateDir), dir: nodeDir(opts.StateDir),
		helper:  filepath.Join(opts.HelperDir, "podinit"),
		addrs:   newAddresses(opts.Subnet, opts.ReuseLIFO),
		metrics: NewMetrics(opts.Registerer),
	}
	if _, err := os.Stat(rt.helper); err != nil {
		return nil, fmt.Errorf("find the helper program: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(rt.dir, "pods"), 0o700); err != nil {
		return nil, fmt.Errorf("make the node's folder: %w", err)
	}
	if opts.Isolation == IsolationFull {
		if err := CanIsolate(); err != nil {
			return nil, err
		}
		if err := rt.prepareRoot(); err != nil {
			return nil, err
		}
		var err error
		if rt.bridge, err = openBridge(rt.hash, opts.Subnet); err != nil {
			return nil, err
		}
		if err := canCloseOutgoing(); err != nil {
			rt.bridge.leaveOutgoing = true
			opts.Log.Warn("pods can reach servers of this machine that listen on all addresses", "err", err)
		}
		rt.cgroups = openCgroups(rt.hash)
	}
	rt.launcher = newLauncher()
	return rt, nil
}

// openNetwork gives the pod the address kept for it, or another.
func (rt *podRuntime) openNetwork(uid types.UID) (podNetwork, error) {
	addr, err := rt.addrs.take(uid)
	if err != nil {
		return nil, err
	}
	if rt.bridge == nil {
		return plainNetwork{addr}, nil
	}
	n, err := rt.bridge.open(addr)
	if err != nil {
		rt.addrs.giveBack(uid)
		return nil, err
	}
	return n, nil
}

// start runs the container's command. After an error nothing runs.
func (rt *podRuntime) start(ctx context.Context, net podNetwork, s processSpec) (*process, error) {
	p := &process{spec: s, rt: rt, exited: make(chan struct{})}
	a := launch{helper: rt.helper, stdout: s.log, stderr: s.log}
	a.spec = initspec.Spec{Args: s.args, Env: s.env, Dir: s.dir, UID: s.uid, GID: s.gid}
	if isolated, ok := net.(*isolatedNetwork); ok {
		p.dir = filepath.Join(rt.dir, "pods", string(s.podUID), fmt.Sprintf("%s-%d", s.container, s.attempt))
		root, err := rt.containerRoot(p.dir, isolated.Addr(), &a.spec, s)
		if err != nil {
			_ = os.RemoveAll(p.dir)
			return nil, err
		}
		a.spec.Env = append(slices.Clone(s.env), layerVariable+"="+strings.Join(ownFolders, ":"))
		p.cgroup = rt.cgroups.make(string(s.podUID)+"_"+s.container, s.resources)
		root.Binds = append(root.Binds, p.cgroup.binds()...)
		a.spec.Root, a.spec.NetNS, a.spec.Cgroups = root, initspec.FirstFD, p.cgroup.procs()
		a.spec.KeepCaps, a.spec.NoNewPrivs, a.spec.NoUserNamespaces = keptCaps, true, true
		a.cloneFlags = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
		ns, err := isolated.file()
		if err != nil {
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
	cmd, err := rt.launcher.run(ctx, a)
	if err != nil {
		closeAll(p.ns...)
		p.cgroup.remove()
		if p.dir != "" {
			_ = os.RemoveAll(p.dir)
		}
		return nil, err
	}
	p.cmd, p.started = cmd, time.Now()
	go p.watch()
	return p, nil
}

// close takes away what all pods share, but for the guard of the subnet. The
// pods must be gone.
func (rt *podRuntime) close() error {
	rt.launcher.close()
	if rt.opts.Isolation == IsolationFull {
		return clean(rt.opts.StateDir)
	}
	return nil
}

// program returns the command of a container, and the host's file to show
// inside if it is not in the part of the machine that containers see.
func program(image Image, full bool) (args []string, file string) {
	args = slices.Clone(image.Command)
	if !full || !filepath.IsAbs(args[0]) {
		return args, ""
	}
	for _, seen := range visible {
		if strings.HasPrefix(args[0], seen+"/") {
			return args, ""
		}
	}
	file = args[0]
	args[0] = filepath.Join(imageDir, filepath.Base(file))
	return args, file
}

// plainNetwork is an address of the loopback interface.
type plainNetwork struct{ addr netip.Addr }
