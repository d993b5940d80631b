package binaries

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/sandlane/sandlane/hack/kube"
)

// Names of the programs.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Kubectl           = "kubectl"
)

// program is what it takes to build one.
type program struct {
	pkg  string
	cold time.Duration // measured on two cores with empty caches
}

var programs = map[string]program{
	Etcd:              {"go.etcd.io/etcd/server/v3", time.Minute},
	APIServer:         {"k8s.io/kubernetes/cmd/kube-apiserver", 4 * time.Minute},
	ControllerManager: {"k8s.io/kubernetes/cmd/kube-controller-manager", time.Minute},
	Kubectl:           {"k8s.io/kubernetes/cmd/kubectl", 30 * time.Second},
}

// All returns every program, in the order in which they are best built.
func All() []string { return []string{Etcd, APIServer, Kubectl, ControllerManager} }

// Options of Find. The zero value looks everywhere and builds quietly.
type Options struct {
	// CacheDir holds what was built; default the user's cache folder.
	CacheDir string
	// Progress is called with one line for each step; nil: not called.
	Progress func(line string)
	// Background builds with less of the processors than other work gets: somebody is served
	// meanwhile.
	Background bool
	// Getenv, LookPath and Free stand in for the system in tests: an environment
	// variable, a program on PATH, the free bytes at a path.
	Getenv   func(string) string
	LookPath func(string) (string, error)
	Free     func(path string) (uint64, error)
	// Module is the embedded go.mod and go.sum; replaced in tests only.
	Module func() (mod, sum []byte, version string)
}

func (o *Options) complete() error {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.LookPath == nil {
		o.LookPath = exec.LookPath
	}
	if o.Free == nil {
		o.Free = FreeBytes
	}
	if o.Module == nil {
		o.Module = func() ([]byte, []byte, string) { return kube.Mod, kube.Sum, kube.Version() }
	}
	if o.CacheDir == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("no cache folder for the Kubernetes binaries (set $HOME or $XDG_CACHE_HOME): %w", err)
		}
		o.CacheDir = filepath.Join(dir, "sandlane")
	}
	return nil
}

// cache is the folder of this version of the module.
func (o *Options) cache() string {
	mod, sum, version := o.Module()
	h := sha256.New()
	h.Write(mod)
	h.Write(sum)
	key := fmt.Sprintf("%s-%s-%s-%s", version, runtime.GOOS, runtime.GOARCH, hex.EncodeToString(h.Sum(nil))[:12])
	return filepath.Join(o.CacheDir, "kube", key)
}

// lookup returns where a program is, or "" if it must be built.
func (o *Options) lookup(name string) string {
	if assets := o.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		if path := filepath.Join(assets, name); executable(path) {
			return path
		}
	}
	if path := filepath.Join(o.cache(), name); executable(path) {
		return path
	}
	return ""
}

// Present returns the paths of those of the named programs that need not be built.
func Present(o Options, names ...string) (map[string]string, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	return o.present(names), nil
}

func (o *Options) present(names []string) map[string]string {
	found := make(map[string]string, len(names))
	for _, name := range names {
		if path := o.lookup(name); path != "" {
			found[name] = path
		}
	}
	return found
}

// Find returns the path of each named program, and builds what is not there; names must be
// among All().
func Find(ctx context.Context, o Options, names ...string) (map[string]string, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	found := o.present(names)
	missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return found[name] != "" })
	if len(missing) == 0 {
		return found, nil
	}
	built, err := build(ctx, &o, missing)
	if err != nil {
		return nil, err
	}
	for name, path := range built {
		found[name] = path
	}
	return found, nil
}

func executable(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o111 != 0
}
