package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/local"
)

// kubectl's end is the command's: its exit code, or that of a program that a signal ended, as
// SIGPIPE does behind `| head`, and no line of ours.
func TestKubectlEndsAsItself(t *testing.T) {
	state, assets := t.TempDir(), t.TempDir()
	lock, err := os.OpenFile(filepath.Join(state, "up.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := lock.WriteString(strconv.Itoa(os.Getpid())); err != nil {
		t.Fatal(err)
	}
	up, err := json.Marshal(local.UpFile{Kubeconfig: "none"})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		filepath.Join(state, "up.json"):  string(up),
		filepath.Join(assets, "kubectl"): "#!/bin/sh\neval \"$1\"\n",
	} {
		if err := os.WriteFile(name, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("KUBEBUILDER_ASSETS", assets)
	for line, want := range map[string]int{"exit 0": 0, "exit 3": 3, "kill -PIPE $$": 141, "kill -KILL $$": 137} {
		if code, stdout, stderr := run(t, "kubectl", "--state", state, line); code != want || stdout+stderr != "" {
			t.Errorf("%s: exit code %d, want %d; it says %q %q", line, code, want, stdout, stderr)
		}
	}
}
