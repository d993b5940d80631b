package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"aead.dev/minisign"
	"github.com/spf13/cobra"

	"github.com/sandlane/sandlane/local"
	"github.com/sandlane/sandlane/local/bundle"
)

// `up --detach` takes the bundle and runs itself once more: that second run is told neither the
// bundle nor its key, and starts from what the first has unpacked.
func TestSecondRunOfADetachedUpNeedsNoBundle(t *testing.T) {
	key, sign, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text, err := key.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	dir, build := t.TempDir(), bundle.Build{Version: ownVersion(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	var b bytes.Buffer
	keyFile := filepath.Join(dir, "key.pub")
	err = errors.Join(os.WriteFile(filepath.Join(dir, "etcd"), []byte("a program"), 0o600), os.WriteFile(keyFile, text, 0o600),
		bundle.Write(&b, dir, []string{"etcd"}, build, sign), os.WriteFile(filepath.Join(dir, build.Name()), b.Bytes(), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv(bundleEnv, dir)
	up := func(keyFile string) error {
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		cmd.SetErr(t.Output())
		take := bundleFlags(cmd)
		if err := cmd.Flags().Set(keyFlag, keyFile); err != nil {
			t.Fatal(err)
		}
		return take()
	}
	if err := up(keyFile); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(cache, "sandlane", "etcd")); err != nil {
		t.Error(err)
	}
	second := &cobra.Command{}
	bundleFlags(second)
	for _, flag := range []string{"bundle", keyFlag} {
		if v := second.Flag(flag).Value.String(); v != "" {
			t.Errorf("the second run has --%s=%s", flag, v)
		}
		for _, arg := range upArgs(&local.Options{}) {
			if arg == "--"+flag {
				t.Errorf("the second run gets %s", arg)
			}
		}
	}
	if err := up(""); err != nil {
		t.Errorf("the second run: %v", err)
	}
}
