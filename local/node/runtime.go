package node

import (
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/local/node/cgroups"
	"github.com/sandlane/sandlane/local/node/images"
	"github.com/sandlane/sandlane/local/node/network"
	"github.com/sandlane/sandlane/local/node/process"
	"github.com/sandlane/sandlane/local/node/rootfs"
)

// podRuntime opens networks and starts processes, with or without isolation.
// Safe for concurrent use.
type podRuntime struct {
	images  *images.Store
	opts    Options
	hash    string
	dir     string // the node's part of the state folder
	addrs   *network.Addresses
	bridge  *network.Bridge // nil without isolation
	runner  *process.Runner
	metrics *Metrics
}

func newRuntime(opts Options) (*podRuntime, error) {
	rt := &podRuntime{
		opts: opts, hash: stateHash(opts.StateDir), dir: nodeDir(opts.StateDir),
		addrs:   network.NewAddresses(opts.Subnet, opts.ReuseLIFO),
		metrics: NewMetrics(opts.Registerer),
	}
	if err := os.MkdirAll(filepath.Join(rt.dir, "pods"), 0o700); err != nil {
		return nil, fmt.Errorf("make the node's folder: %w", err)
	}
	var roots *rootfs.Machine
	var groups *cgroups.Groups
	var err error
	if opts.Isolation == IsolationFull {
		if err := CanIsolate(); err != nil {
			return nil, err
		}
		groups = cgroups.Open(rt.hash)
		if roots, err = rootfs.Prepare(rootfs.Options{
			Dir: rt.dir, StateDir: opts.StateDir, HelperDir: opts.HelperDir, Kubeconfig: opts.Kubeconfig, Groups: groups.MountPoints(),
		}); err != nil {
			return nil, err
		}
		if rt.bridge, err = network.OpenBridge(rt.hash, opts.Subnet); err != nil {
			return nil, err
		}
		if err := rt.bridge.TryClosing(); err != nil {
			if opts.Egress {
				return nil, err
			}
			opts.Log.Warn("pods can reach servers of this machine that listen on all addresses", "err", err)
		}
	}
	if rt.images, err = images.New(opts.ImageStore); err != nil {
		return nil, err
	}
	if rt.runner, err = process.NewRunner(filepath.Join(opts.HelperDir, "podinit"), rt.dir, roots, groups); err != nil {
		return nil, err
	}
	return rt, nil
}

// openNetwork gives the pod the address kept for it, or another. A pod whose only name server
// is the bridge's address may connect to the egress process there, where this node has one.
func (rt *podRuntime) openNetwork(pod *corev1.Pod) (network.Pod, error) {
	uid := pod.UID
	addr, err := rt.addrs.Take(uid)
	if err != nil {
		return nil, err
	}
	if rt.bridge == nil {
		return network.Loopback{Address: addr}, nil
	}
	n, err := rt.bridge.Open(addr, rt.opts.Egress && asksEgress(pod, network.GatewayOf(rt.opts.Subnet)))
	if err != nil {
		rt.addrs.GiveBack(uid)
		return nil, err
	}
	return n, nil
}

// close takes away what all pods share, but for the guard of the subnet. The
// pods must be gone.
func (rt *podRuntime) close() error {
	rt.runner.Close()
	if rt.opts.Isolation == IsolationFull {
		return clean(rt.opts.StateDir)
	}
	return nil
}
