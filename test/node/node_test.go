package node

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// childEnv makes this test binary a child that boots a node and waits.
	childEnv  = "SANDLANE_NODE_TEST_CHILD"
	imagesEnv = "SANDLANE_IMAGES"
)

func TestMain(m *testing.M) {
	Helper()
	os.Exit(m.Run())
}

// options are those of the environment that `make helm-test` sets.
func options(t *testing.T) Options {
	t.Helper()
	o := Options{
		Bin: os.Getenv("NODE_BIN"), Assets: os.Getenv("KUBEBUILDER_ASSETS"), PauseImage: "sandlane-test-pause:test",
		Progress: func(line string) { t.Log(line) },
	}
	images := os.Getenv(imagesEnv)
	if o.Bin == "" || o.Assets == "" || images == "" {
		t.Skip("NODE_BIN, KUBEBUILDER_ASSETS or " + imagesEnv + " is not set: `make helm-test` sets them, boots a node and runs this test")
	}
	for _, name := range []string{"pause", "echo"} {
		tarballs, err := filepath.Glob(filepath.Join(images, "sandlane-test-"+name+"-*.tar"))
		if err != nil || len(tarballs) != 1 {
			t.Fatalf("images of %s in %s: %v, %v", name, images, tarballs, err)
		}
		o.Images = append(o.Images, tarballs[0])
	}
	return o
}

const echo = `apiVersion: v1
kind: Pod
metadata: {name: echo, labels: {app: echo}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: sandlane-test-echo:test
    imagePullPolicy: IfNotPresent
    readinessProbe: {httpGet: {path: /, port: 8000}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {clusterIP: 10.96.0.80, selector: {app: echo}, ports: [{port: 80, targetPort: 8000}]}
`

// A pod gets ready by its probe and answers at its Service; after Stop no process, control
// group or file of the node is left.
func TestNodeRunsPods(t *testing.T) {
	o := options(t)
	n, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
		gone(t, n.state, n.Name)
	}()
	manifest := n.file("echo.yaml")
	if err := os.WriteFile(manifest, []byte(echo), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"kubectl", "apply", "-f", manifest},
		{"kubectl", "wait", "--for=condition=Ready", "pod/echo", "--timeout=60s"},
		{"curl", "-fsS", "--retry", "20", "--retry-all-errors", "--retry-delay", "1", "--max-time", "60", "http://10.96.0.80/hello"},
	} {
		out, err := n.Run(t.Context(), args[0], args[1:]...)
		if err != nil {
			t.Fatalf("%v\n%s", err, n.Logs(20))
		}
		t.Log(strings.TrimSpace(out))
	}
}

// A test that is killed, or interrupted by Ctrl-C, leaves nothing behind, too.
func TestKilledTestLeavesNothing(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		o := options(t)
		o.Images = nil
		n, err := Start(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.TempDir(); err != nil {
			t.Fatal(err)
		}
		fmt.Println("\nnode", n.state)
		select {} // until it is killed
	}
	options(t)
	for name, signal := range map[string]func(group int) error{
		"kill -9": func(group int) error { return syscall.Kill(group, syscall.SIGKILL) },
		"Ctrl-C":  func(group int) error { return syscall.Kill(-group, syscall.SIGINT) }, // as a terminal does
	} {
		t.Run(name, func(t *testing.T) { endChild(t, signal) })
	}
}

// endChild starts a child, which leads a group of processes, and ends it once its node
// runs.
func endChild(t *testing.T, signal func(group int) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*bootTimeout)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestKilledTestLeavesNothing$", "-test.v")
	child.Env = append(os.Environ(), childEnv+"=1")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var state string
	for lines := bufio.NewScanner(out); state == "" && lines.Scan(); {
		if at, ok := strings.CutPrefix(lines.Text(), "node "); ok {
			state = at
		}
	}
	if err := signal(child.Process.Pid); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	if state == "" {
		t.Fatal("the child ended without a node")
	}
	gone(t, state, filepath.Base(state))
}

// gone waits until no processes, control groups and files of a node are left.
func gone(t *testing.T, state, name string) {
	t.Helper()
	var left []string
	deadline := time.Now().Add(cleanTimeout)
	for tick := time.NewTicker(100 * time.Millisecond); time.Now().Before(deadline); <-tick.C {
		left = groups(name)
		if _, err := os.Stat(state); err == nil {
			left = append(left, state)
		}
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is good
		for _, file := range lines {
			if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), state) {
				left = append(left, strings.ReplaceAll(string(text), "\x00", " "))
			}
		}
		if len(left) == 0 {
			return
		}
	}
	t.Errorf("left of the node %s:\n%s", name, strings.Join(left, "\n"))
}
