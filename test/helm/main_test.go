package helm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/node"
)

const (
	system = "sandlane-system"
	chart  = "../../charts/sandlane"
)

func TestMain(m *testing.M) {
	node.Helper()
	runClient()
	os.Exit(m.Run())
}

// cluster is a real node, with the methods that the chart's tests need.
type cluster struct {
	*node.Node
	sandlane string // the binary
	chart    string
	values   []string // of an installation, besides those of testdata/values.yaml
	key      string   // an API key of the team
	volume   string   // the folder of checkpoints, which gateways and controllers mount
	// hibernated is the ID of the sandbox that the step hibernate has paused.
	hibernated string
	// asked and lost are how many requests during sent, and how many of them failed.
	asked, lost int
}

// boot starts a node with the images of hack/helm-test.sh; it ends with the test. Pods ask the
// name server, if one is given.
func boot(t *testing.T, nameServer string) *cluster {
	t.Helper()
	bin, assets, images, sandlane := os.Getenv("NODE_BIN"), os.Getenv("KUBEBUILDER_ASSETS"), os.Getenv("SANDLANE_IMAGES"), os.Getenv("SANDLANE_BIN")
	if bin == "" || assets == "" || images == "" || sandlane == "" {
		t.Fatal("NODE_BIN, KUBEBUILDER_ASSETS, SANDLANE_IMAGES or SANDLANE_BIN is not set: run `make helm-test`")
	}
	tarballs, err := filepath.Glob(filepath.Join(images, "*.tar"))
	if err != nil || len(tarballs) == 0 {
		t.Fatalf("no images in %s: %v", images, err)
	}
	path, err := filepath.Abs(chart)
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Start(t.Context(), node.Options{
		Bin: bin, Assets: assets, PauseImage: "sandlane-test-pause:test", Images: tarballs, NameServer: nameServer,
		Progress: func(line string) { fmt.Println("   ", line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{Node: n, sandlane: sandlane, chart: path}
	t.Cleanup(func() {
		if t.Failed() {
			c.tell(t)
		}
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// tempDir makes a folder that is removed with the node, also when the test is killed.
func (c *cluster) tempDir(t *testing.T) string {
	t.Helper()
	dir, err := c.TempDir()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// run runs a command on the node; if it fails, so does the test.
func (c *cluster) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	out, err := c.Run(ctx, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func (c *cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return c.run(t, "kubectl", args...)
}

// eventually runs a command until it succeeds and prints what is wanted.
func (c *cluster) eventually(t *testing.T, want func(out string) bool, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		out, err := c.Run(ctx, name, args...)
		if err == nil && want(strings.TrimSpace(out)) {
			return strings.TrimSpace(out)
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s %s: last %q, %v", name, strings.Join(args, " "), out, err)
		case <-tick.C:
		}
	}
}

// tell logs the state that a person would look at first.
func (c *cluster) tell(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, line := range []string{
		"get pods -A -o wide", "get sandboxpools,sandboxes -A", "get events -A --sort-by=.lastTimestamp",
		"-n sandlane-system logs -l app=sandlane-gateway --all-containers --prefix --tail=15",
		"-n sandlane-system logs -l app=sandlane-controller --prefix --tail=15",
		"-n sandlane-system logs -l app=sandlane-control-certs --prefix --tail=15",
	} {
		out, err := c.Run(ctx, "kubectl", strings.Fields(line)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		t.Logf("kubectl %s (%v)\n%s", line, err, strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
}

func testdata(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}
