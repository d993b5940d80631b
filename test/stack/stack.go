package stack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// BinaryEnv names the environment variable that holds the path of the sandlane
// binary under test. Without it the checkout's bin/sandlane is used.
const BinaryEnv = "SANDLANE_BIN"

// FastPathEnv names the environment variable whose value stacks are started with as
// --fast-path; without it they have up's default.
const FastPathEnv = "SANDLANE_FAST_PATH"

// UpFile is what `sandlane up` writes to up.json.
type UpFile struct {
	GatewayURL  string         `json:"gatewayURL"`
	Domain      string         `json:"domain"`
	CAFile      string         `json:"caFile"`
	NodeResolve string         `json:"nodeResolve"`
	APIKey      string         `json:"apiKey"`
	ConsoleURL  string         `json:"consoleURL"`
	Kubeconfig  string         `json:"kubeconfig"`
	MetricsURL  string         `json:"metricsURL"`
	Pids        map[string]int `json:"pids"`
	Gateways    []Gateway      `json:"gateways"`
}

// Gateway is one gateway in up.json.
type Gateway struct {
	Name       string         `json:"name"`
	URL        string         `json:"url"`
	Domain     string         `json:"domain"`
	MetricsURL string         `json:"metricsURL"`
	Pids       map[string]int `json:"pids"`
}

// Stack is a running Sandlane.
type Stack struct {
	// Bin is the sandlane binary, State its state folder.
	Bin, State string
	// Up is up.json as it was when the stack started.
	Up UpFile
	// FastPath: Envoy answers hits by itself, or will from its first request on.
	FastPath bool
	// Config and Client reach the API server as an administrator, without a
	// client-side rate limit.
	Config *rest.Config
	Client client.WithWatch

	forget  func() // what would stop this stack after the process; guarded by running.mu
	audited bool   // Stop compares what was asked for with the list of rights
}

// Binary returns the sandlane binary under test.
func Binary() (string, error) {
	if p := os.Getenv(BinaryEnv); p != "" {
		return p, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			p := filepath.Join(dir, "bin", "sandlane")
			if _, err := os.Stat(p); err != nil {
				return "", fmt.Errorf("no binary under test: run `make build` first: %w", err)
			}
			return p, nil
		}
	}
	return "", errors.New("no binary under test: not inside a checkout and " + BinaryEnv + " is unset")
}

// AddressCooldown is how long an address cools down in the stacks that Start makes, unless their
// arguments say otherwise. It is shorter than what is shipped: tests end many sandboxes.
const AddressCooldown = 3 * time.Second

// Start runs `sandlane up -d` with a free port and the given further
// arguments, and returns when it is ready. The caller calls Stop, also after
// an error.
func Start(ctx context.Context, state string, args ...string) (*Stack, error) {
	bin, err := Binary()
	if err != nil {
		return nil, err
	}
	s := &Stack{Bin: bin, State: state, audited: slices.Contains(args, auditFlag)}
	if err := attend(s); err != nil {
		return s, err
	}
	mode := os.Getenv(FastPathEnv)
	if mode != "" {
		args = append([]string{"--fast-path", mode}, args...)
	}
	// A kernel of Python a stack is more than most tests need; those that do ask for it.
	out, err := s.Run(ctx, append([]string{"up", "-d", "--port", "0", "--interpreter-pool-size", "0", "--address-cooldown", AddressCooldown.String()}, args...)...)
	if err != nil {
		return s, fmt.Errorf("sandlane up: %w\n%s", err, out)
	}
	if err := s.Reload(); err != nil {
		return s, err
	}
	if s.FastPath, err = s.hasFastPath(ctx); err != nil {
		return s, err
	}
	if mode == "auto" && !s.FastPath {
		return s, fmt.Errorf("%s asks for the fast path, and it is off:\n%s", FastPathEnv, out)
	}
	s.Config, err = clientcmd.BuildConfigFromFlags("", s.Up.Kubeconfig)
	if err != nil {
		return s, fmt.Errorf("read the kubeconfig: %w", err)
	}
	s.Config.QPS = -1
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return s, err
	}
	s.Client, err = client.NewWithWatch(s.Config, client.Options{Scheme: scheme})
	return s, err
}

// Reload reads up.json again, as after a process was restarted.
func (s *Stack) Reload() error {
	data, err := os.ReadFile(filepath.Join(s.State, "up.json"))
	if err != nil {
		return fmt.Errorf("read up.json: %w", err)
	}
	var up UpFile
	if err := json.Unmarshal(data, &up); err != nil {
		return fmt.Errorf("parse up.json: %w", err)
	}
	s.Up = up
	return nil
}

// Run runs the binary with the stack's state folder and returns what it
// printed on both streams.
func (s *Stack) Run(ctx context.Context, args ...string) (string, error) {
	full := append([]string{args[0], "--state", s.State}, args[1:]...)
	cmd := exec.CommandContext(ctx, s.Bin, full...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 5 * time.Second // a child that keeps the pipe open must not hang the test
	err := cmd.Run()
	return out.String(), err
}

// Stop runs `sandlane down`. It may be called on a stack that never started. Of one
// that was started with --audit it returns an error too if gateways or controller
// asked the API server for more than the list of their rights has.
func (s *Stack) Stop() error {
	defer leave(s)
	err := s.down()
	if s.audited && s.Client != nil {
		_, more := s.CheckRights()
		err = errors.Join(err, more)
	}
	return err
}

func (s *Stack) down() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out, err := s.Run(ctx, "down")
	if err != nil {
		return fmt.Errorf("sandlane down: %w\n%s", err, out)
	}
	return nil
}

// Logs returns the last lines of every log in the state folder, for a failed
// test to print.
func (s *Stack) Logs(lines int) string {
	files, _ := filepath.Glob(filepath.Join(s.State, "logs", "*.log"))
	var b strings.Builder
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
		if len(all) > lines {
			all = all[len(all)-lines:]
		}
		fmt.Fprintf(&b, "--- %s\n%s\n", filepath.Base(f), strings.Join(all, "\n"))
	}
	return b.String()
}
