package stack

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const childEnv = "SANDLANE_TEST_PANICS"

// A stack whose test process ends by a panic is taken down.
func TestPanicTakesTheStackDown(t *testing.T) {
	if state := os.Getenv(childEnv); state != "" {
		_, err := Start(t.Context(), state)
		panic(err)
	}
	state := t.TempDir()
	bin := filepath.Join(state, "sandlane")
	// It stands for the binary: up fails, so that no stack is needed, and down leaves
	// a mark.
	script := "#!/bin/sh\n[ \"$*\" = \"down --state " + state + "\" ] && exec touch " + state + "/down\nexit 1\n"
	if err := os.WriteFile(bin, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPanicTakesTheStackDown$")
	child.Env = append(os.Environ(), childEnv+"="+state, BinaryEnv+"="+bin)
	var exit *exec.ExitError
	if out, err := child.CombinedOutput(); !errors.As(err, &exit) {
		t.Fatalf("the child ended with %v\n%s", err, out)
	}
	deadline := time.After(30 * time.Second)
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		if _, err := os.Stat(filepath.Join(state, "down")); err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatal("the stack was not taken down")
		case <-tick.C:
		}
	}
}
