package local

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
	"strings"
	"time"

	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/local/helpers"
)

// Values of Options.FastPath.
const (
	// FastPathOff asks ExtProc for each request.
	FastPathOff = "off"
	// FastPathAuto lets Envoy answer hits where it can, else says why not.
	FastPathAuto = "auto"
)

// fastFolder holds the route tables of the gateways, on tmpfs.
func (s state) fastFolder() string {
	sum := sha256.Sum256([]byte(s.dir))
	return filepath.Join("/dev/shm", "sandlane-"+hex.EncodeToString(sum[:6]))
}

// fastPath is the module and table of a gateway's Envoy; zero if there is none.
func (d *dataPlane) fastPath(gateway string) envoy.FastPath {
	if d.module == "" {
		return envoy.FastPath{}
	}
	return envoy.FastPath{Module: d.module, Folder: filepath.Join(d.fastFolder(), gateway)}
}

// fastPathArgs are the gateway's.
func (d *dataPlane) fastPathArgs(gateway string) []string {
	if d.module == "" {
		return nil
	}
	return []string{"--fast-path", FastPathAuto, "--fast-path-folder", d.fastPath(gateway).Folder}
}

// findModule decides whether Envoy answers hits by itself: it sets module if so, and
// says in one line why not.
func (u *up) findModule(ctx context.Context) error {
	if u.o.FastPath != FastPathAuto {
		return nil
	}
	module, err := helpers.ExtractModule(u.dataPlane.helperDir())
	if err == nil {
		err = u.tryModule(ctx, module)
	}
	if err == nil { // not MkdirAll: all users can write beside it, and it must be ours
		err = os.Mkdir(u.fastFolder(), 0o700)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		u.o.Progress(fmt.Sprintf("the fast path is off, ExtProc answers every request: %v", err))
		return nil
	}
	u.dataPlane.module = module
	return nil
}

// tryModule has Envoy load the module with a configuration like the real one.
func (u *up) tryModule(ctx context.Context, module string) error {
	if err := envoy.FastPathProven(runtime.GOARCH); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	version, err := envoy.VersionOf(ctx, u.dataPlane.envoyBin)
	if err != nil {
		return err
	}
	if !slices.Contains(envoy.FastPathVersions, version) {
		return fmt.Errorf("it was tested with Envoy %s, and this is %s", strings.Join(envoy.FastPathVersions, ", "), version)
	}
	bootstrap, err := envoy.Bootstrap(envoy.Options{RunDir: u.run, FastPath: envoy.FastPath{Module: module, Folder: u.fastFolder()}})
	if err != nil {
		return err
	}
	config, err := envoy.JSON(bootstrap)
	if err != nil {
		return err
	}
	file := filepath.Join(u.run, "fastpath.json")
	if err := writeFile(file, config, 0o600); err != nil {
		return err
	}
	defer os.Remove(file)
	out, err := exec.CommandContext(ctx, u.dataPlane.envoyBin, append(envoy.Args(file, 1), "--mode", "validate")...).CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("Envoy rejects its configuration (%w): %s", err, lines[len(lines)-1])
	}
	return nil
}
