package orphans

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const (
	markEnv   = "SANDLANE_TEST_MARK"   // the file that Stop's program makes
	endingEnv = "SANDLANE_TEST_ENDING" // how the process ends
)

// TestMain is also the process that ends: by a panic, or in order.
func TestMain(m *testing.M) {
	mark := os.Getenv(markEnv)
	if mark == "" {
		os.Exit(m.Run())
	}
	forget, err := Stop("touch", mark)
	if err != nil {
		panic(err)
	}
	switch os.Getenv(endingEnv) {
	case "panic":
		panic("as a test might")
	case "wait":
		_, _ = os.Stdout.WriteString("up\n")
		select {}
	}
	forget()
	os.Exit(0)
}

func TestStop(t *testing.T) {
	for ending, runs := range map[string]bool{"panic": true, "wait": true, "in order": false} {
		t.Run(ending, func(t *testing.T) {
			mark := filepath.Join(t.TempDir(), "a mark's name")
			child := exec.CommandContext(t.Context(), os.Args[0])
			child.Env = append(os.Environ(), markEnv+"="+mark, endingEnv+"="+ending)
			out, err := child.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			if ending == "wait" {
				if _, err := out.Read(make([]byte, 3)); err != nil {
					t.Fatal(err)
				}
				_ = child.Process.Kill()
			}
			if err := child.Wait(); (err == nil) != (ending == "in order") {
				t.Fatalf("the process ended with %v", err)
			}
			if !runs {
				// forget waited for the shell, so what it would do is done.
				if _, err := os.Stat(mark); err == nil {
					t.Error("a process that stopped in order had its things stopped again")
				}
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			for tick := time.NewTicker(10 * time.Millisecond); ; {
				if _, err := os.Stat(mark); err == nil {
					return
				}
				select {
				case <-ctx.Done():
					t.Fatal("nothing was stopped")
				case <-tick.C:
				}
			}
		})
	}
}
