package main

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
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

// `bundle verify` takes a folder that the key has signed, by `bundle sign`, and says what is
// wrong with one whose file was changed since.
func TestBundleVerify(t *testing.T) {
	dir := t.TempDir()
	key, chart := filepath.Join(dir, "key"), filepath.Join(dir, "release", "chart.tgz")
	run := func(args ...string) error {
		cmd := newBundle()
		cmd.SetArgs(args)
		cmd.SetOut(t.Output())
		cmd.SetErr(t.Output())
		cmd.SilenceUsage = true
		return cmd.ExecuteContext(t.Context())
	}
	sums := filepath.Join(filepath.Dir(chart), bundle.SumsFile)
	line := fmt.Sprintf("%x  chart.tgz\n", sha256.Sum256([]byte("the chart")))
	err := errors.Join(run("key", key), os.Mkdir(filepath.Dir(chart), 0o755), os.WriteFile(chart, []byte("the chart"), 0o600),
		os.WriteFile(sums, []byte(line), 0o600), run("sign", sums, "--key", key), run("verify", filepath.Dir(chart), "--"+keyFlag, key+".pub"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(chart, []byte("the charT"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, more := range [][]string{nil, {"chart.tgz"}} {
		err := run(append([]string{"verify", filepath.Dir(chart), "--" + keyFlag, key + ".pub"}, more...)...)
		if err == nil || !strings.Contains(err.Error(), "check chart.tgz of the release") {
			t.Errorf("%q: %v", more, err)
		}
	}
	if err := run("verify", filepath.Dir(chart)); err == nil || !strings.Contains(err.Error(), "this sandlane is no release") {
		t.Errorf("without a key: %v", err)
	}
}

// A key's two files are made together or not at all: a public key beside another's private one
// would refuse each bundle that this one signs.
func TestBundleKeyMakesBothFilesOrNone(t *testing.T) {
	for _, there := range []string{"", ".pub"} {
		key := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(key+there, []byte("another"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := newBundle()
		cmd.SetArgs([]string{"key", key})
		cmd.SetErr(t.Output())
		cmd.SilenceUsage = true
		if err := cmd.ExecuteContext(t.Context()); !errors.Is(err, os.ErrExist) {
			t.Errorf("%q: %v", there, err)
		}
		if files, err := os.ReadDir(filepath.Dir(key)); err != nil || len(files) != 1 {
			t.Errorf("%q: %v, %v", there, files, err)
		}
	}
}
