package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sandlane/sandlane/local/node/initspec"
)

// asPodinit makes the test binary podinit.
const asPodinit = "SANDLANE_TEST_PODINIT"

func TestMain(m *testing.M) {
	if os.Getenv(asPodinit) != "" {
		main()
	}
	os.Exit(m.Run())
}

// A command heeds the signals that the node was started to ignore.
func TestCommandsHeedSignals(t *testing.T) {
	for name, child := range map[string]bool{"executed": false, "as a child": true} {
		t.Run(name, func(t *testing.T) {
			spec, err := json.Marshal(initspec.Spec{
				Args: []string{"grep", "SigIgn", "/proc/self/status"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/", Child: child,
			})
			if err != nil {
				t.Fatal(err)
			}
			in, give, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = in.Close() }()
			said, status, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = said.Close() }()
			if _, err := give.Write(spec); err != nil {
				t.Fatal(err)
			}
			_ = give.Close()
			cmd := exec.CommandContext(t.Context(), "sh", "-c", `trap "" HUP INT; exec "$0"`, os.Args[0])
			cmd.Env = append(os.Environ(), asPodinit+"=1")
			cmd.ExtraFiles = []*os.File{in, status} // initspec.SpecFD and StatusFD
			out, err := cmd.Output()
			_ = status.Close()
			_, mask, _ := strings.Cut(string(out), ":")
			ignored, parsed := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			if err != nil || parsed != nil {
				t.Fatalf("%v, %v: %q", err, parsed, out)
			}
			for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT} {
				if ignored&(1<<(sig-1)) != 0 {
					t.Errorf("the command ignores %v", sig)
				}
			}
		})
	}
}
