package node

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sandlane/sandlane/local/node/images"
)

// Isolation says how pods are kept apart.
type Isolation string

const (
	// IsolationFull gives each pod namespaces of its own; it needs root.
	IsolationFull Isolation = "full"
	// IsolationNone runs plain processes on loopback addresses.
	IsolationNone Isolation = "none"
)

// Options of Run.
type Options struct {
	// RestConfig reaches the API server; if nil, Kubeconfig is read.
	RestConfig *rest.Config
	// Kubeconfig is a file; used without RestConfig.
	Kubeconfig string
	// Name is the node's name. Default "sandlane".
	Name string
	// StateDir is the state folder; what the node leaves outside of it carries
	// a hash of this path. Required.
	StateDir string
	// Subnet is where pod addresses come from (see PickSubnet). Required.
	Subnet netip.Prefix
	// Isolation is how pods are kept apart. Required.
	Isolation Isolation
	// Images is the image table's file. Required.
	Images string
	// ImageStore says where images of registries are kept; the zero value is the user's cache.
	ImageStore images.Options
	// HelperDir holds the helper program podinit. Required.
	HelperDir string
	// Egress: an egress process serves at the subnet's first address, and pods whose only
	// name server that is may connect to it. Needs IsolationFull.
	Egress bool
	// ReuseLIFO gives the address released last out first, so that tests meet
	// re-used addresses at once. Default: the one released longest ago.
	ReuseLIFO bool
	// Log defaults to slog.Default().
	Log *slog.Logger
	// Registerer gets the metrics; nil means none.
	Registerer prometheus.Registerer
	// Ready, if set, is called once when pods are being served.
	Ready func()

	inspect func(*provider) // tests look inside
}

// complete fills defaults, makes paths absolute, and checks the rest.
func (o *Options) complete() error {
	if o.Name == "" {
		o.Name = "sandlane"
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	for what, path := range map[string]*string{"StateDir": &o.StateDir, "Images": &o.Images, "HelperDir": &o.HelperDir} {
		if *path == "" {
			return fmt.Errorf("node: %s is required", what)
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("node: %s: %w", what, err)
		}
		*path = abs
	}
	switch {
	case o.Isolation != IsolationFull && o.Isolation != IsolationNone:
		return fmt.Errorf("node: isolation %q: want full or none", o.Isolation)
	case o.Egress && o.Isolation != IsolationFull:
		return errors.New("node: egress needs isolation, by which it knows whose a connection is")
	case !o.Subnet.IsValid() || !o.Subnet.Addr().Is4() || o.Subnet.Bits() > 29:
		return fmt.Errorf("node: subnet %q: want an IPv4 network of at least 8 addresses", o.Subnet)
	case o.Isolation == IsolationNone && !o.Subnet.Addr().IsLoopback():
		return errors.New("node: without isolation the subnet must be inside 127.0.0.0/8")
	}
	if o.RestConfig == nil {
		cfg, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
		if err != nil {
			return fmt.Errorf("node: read the kubeconfig: %w", err)
		}
		o.RestConfig = cfg
	}
	o.RestConfig = rest.CopyConfig(o.RestConfig)
	o.RestConfig.QPS = -1 // one machine, one node: no client-side limit
	return nil
}

// stateHash identifies a state folder in names outside of it: 8 hex digits.
func stateHash(stateDir string) string {
	path, err := filepath.Abs(stateDir)
	if err != nil {
		path = stateDir
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:4])
}

// nodeDir is the part of the state folder that belongs to the node.
func nodeDir(stateDir string) string { return filepath.Join(stateDir, "node") }
