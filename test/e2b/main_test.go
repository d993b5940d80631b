package e2b

import (
	"context"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/stack"
)

var (
	update = flag.Bool("update", false, "write the table of docs/e2b.md")
	// shared is the stack that all SDKs talk to.
	shared *stack.Stack
	// images is a registry whose images may be bases of templates.
	images *httptest.Server
)

func TestMain(m *testing.M) {
	if etc := os.Getenv(filesEnv); etc != "" {
		fmt.Fprintln(os.Stderr, inNamespace(etc, os.Args[1:]))
		os.Exit(1)
	}
	flag.Parse()
	modules, err := filepath.Abs(filepath.Join(sdkPrograms, "python"))
	if err == nil {
		err = os.Setenv("PYTHONPATH", modules)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "test/e2b needs root: it gives each sandbox namespaces of its own. Run it as root, or leave it out.")
		return 1
	}
	state, err := os.MkdirTemp("", "sandlane-e2b-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	images = newRegistry()
	defer images.Close()
	shared, err = stack.Start(ctx, state, "--template-bases", strings.TrimPrefix(images.URL, "http://")+"/*", "--isolation", "full", "--pool-size", "1", "--base-pool-size", "6", "--interpreter-pool-size", "1")
	defer func() {
		if code != 0 {
			fmt.Fprintln(os.Stderr, shared.Logs(40))
		}
		if err := shared.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		if code == 0 {
			_ = os.RemoveAll(state)
		}
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if code = m.Run(); code == 0 && shared.FastPath {
		code = fastPathShare()
	}
	return code
}

const (
	// leastShare is the share of SDKs' hits that Envoy must have answered by itself: a run has
	// some 1,000, of which ExtProc answers 100 to 150 after the test's kills of Envoys and gateways.
	leastShare = 0.8
	// enoughHits is from how many hits on that is asked: ExtProc answers some of the first
	// ones after each start of an Envoy, and a run of a single test has few others.
	enoughHits = 500
)

// referee counts the hits of TestConformance, beside which no other test runs. They are no
// SDK's: many are for sandboxes that are asked once, are paused, or have ended.
var referee struct{ inEnvoy, all float64 }

// fastPathShare says how many of the hits of all tests but the referee's Envoy answered by itself.
func fastPathShare() (code int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	inEnvoy, all, err := shared.FastPathShare(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	inEnvoy, all = inEnvoy-referee.inEnvoy, all-referee.all
	fmt.Printf("Envoy answered %.0f of %.0f hits by itself: %.3f\n", inEnvoy, all, inEnvoy/all)
	if all >= enoughHits && inEnvoy < leastShare*all {
		fmt.Fprintf(os.Stderr, "that is too little: want %g\n", leastShare)
		return 1
	}
	return 0
}
