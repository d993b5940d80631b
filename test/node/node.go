package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Addresses of the node; they are in a network namespace of its own.
const (
	Address        = "10.89.0.1"
	serviceAddress = "10.96.0.1"
	serviceRange   = "10.96.0.0/16"
	podRange       = "10.88.0.0/16"
	apiServer      = "https://" + Address + ":6443"

	// Registry is where a test may serve a registry without TLS, which pods reach too and from which
	// the kubelet pulls.
	Registry = Address + ":5000"
)

const (
	roleEnv  = "SANDLANE_NODE_ROLE"
	stateEnv = "SANDLANE_NODE_STATE"

	prefix = "sandlane-node-"
	// bootTimeout is for machines that are busy with other tests.
	bootTimeout = 5 * time.Minute
)

// Options of Start.
type Options struct {
	// Bin holds the programs of hack/node/build.sh; Assets those of `sandlane
	// prepare` (etcd, kube-apiserver, kube-controller-manager, kubectl).
	Bin, Assets string
	// PauseImage is the name of the image, among Images, that holds a pod's
	// namespaces.
	PauseImage string
	// Images are tarballs to import.
	Images []string
	// NameServer is the address of the name server that pods ask, which the caller installs;
	// empty: pods use this machine's resolv.conf.
	NameServer string
	// Progress is called with a line about each step of Start and how long it took. It may
	// be nil.
	Progress func(line string)
}

// Node is a running node. Its methods are safe for concurrent use, but for Stop,
// which is called once.
type Node struct {
	// Name is the name of the node and of its control groups.
	Name string

	o      Options
	state  string
	keeper *exec.Cmd
	alive  io.Closer // the keeper's standard input
	ended  chan error
	init   int // process ID of the node's PID 1, as this process sees it
}

// Start boots a node and returns when it is Ready and has its images.
func Start(ctx context.Context, o Options) (_ *Node, err error) {
	if os.Getuid() != 0 {
		return nil, errors.New("a node needs root: it makes namespaces, mounts and control groups")
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	removeLeftovers()
	state, err := os.MkdirTemp("", prefix)
	if err != nil {
		return nil, fmt.Errorf("make the node's folder: %w", err)
	}
	n := &Node{Name: filepath.Base(state), o: o, state: state}
	if err := errors.Join(os.Chmod(state, 0o755), n.writeFiles()); err != nil {
		return nil, errors.Join(err, os.RemoveAll(state))
	}
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	began := time.Now()
	if err := n.startKeeper(ctx); err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	o.Progress(fmt.Sprintf("programs of the node started after %s", since(began)))
	if err := n.settle(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%w\n%s", err, n.Logs(15)), n.Stop())
	}
	o.Progress(fmt.Sprintf("node Ready after %s", since(began)))
	return n, nil
}

func since(t time.Time) time.Duration { return time.Since(t).Round(100 * time.Millisecond) }

// startKeeper returns once init has started all programs.
func (n *Node) startKeeper(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the test's binary: %w", err)
	}
	// The keeper outlives the context: it cleans up.
	n.keeper = exec.Command(self)
	n.keeper.Env = append(os.Environ(), roleEnv+"="+roleKeeper, stateEnv+"="+n.state)
	n.keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	log, err := os.OpenFile(n.log("keeper"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the keeper's log: %w", err)
	}
	defer log.Close()
	n.keeper.Stderr = log
	stdin, stdinErr := n.keeper.StdinPipe()
	stdout, stdoutErr := n.keeper.StdoutPipe()
	if err := errors.Join(stdinErr, stdoutErr); err != nil {
		return fmt.Errorf("make the keeper's pipes: %w", err)
	}
	if err := n.keeper.Start(); err != nil {
		return fmt.Errorf("start the keeper: %w", err)
	}
	n.alive, n.ended = stdin, make(chan error, 1)
	said := make(chan string, 8)
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			said <- lines.Text()
		}
		close(said)
		n.ended <- n.keeper.Wait()
	}()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("start the node's programs: %w\n%s", context.Cause(ctx), n.Logs(15))
		case line, ok := <-said:
			switch {
			case !ok:
				return fmt.Errorf("the node ended while it started\n%s", n.Logs(15))
			case strings.HasPrefix(line, saysPID):
				if n.init, err = strconv.Atoi(strings.TrimPrefix(line, saysPID)); err != nil {
					return fmt.Errorf("the keeper says %q: %w", line, err)
				}
			case line == saysStarted:
				return nil
			}
		}
	}
}

// Stop ends the node and returns when its processes, control groups and files are gone.
func (n *Node) Stop() error {
	if n.alive == nil {
		return os.RemoveAll(n.state)
	}
	if err := n.alive.Close(); err != nil {
		return fmt.Errorf("end the keeper: %w", err)
	}
	select {
	case err := <-n.ended:
		if err != nil {
			return fmt.Errorf("the keeper of the node failed: %w", err)
		}
	case <-time.After(cleanTimeout + 10*time.Second):
		return errors.New("the keeper of the node does not end")
	}
	return nil
}

// Command returns a command that runs on the node, with its network and its mounts; kubectl
// and Helm use its API server. The working folder is /.
func (n *Node) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	into := []string{"-t", strconv.Itoa(n.init), "-m", "-n", "-p", "-i", "-u", "--", name}
	cmd := exec.CommandContext(ctx, "nsenter", append(into, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+n.Kubeconfig(), "PATH="+n.path(), "HELM_CACHE_HOME="+n.file("helm"),
		"HELM_CONFIG_HOME="+n.file("helm"), "HELM_DATA_HOME="+n.file("helm"))
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// Run runs a Command and returns what it printed on standard output; an error has what it
// printed on standard error.
func (n *Node) Run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := n.Command(ctx, name, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()+" "+string(out)))
	}
	return string(out), nil
}

// TempDir makes a folder that is removed with the node, also when the test is killed. Only
// root may read it.
func (n *Node) TempDir() (string, error) { return os.MkdirTemp(n.state, "test-") }

// Kubeconfig returns the path of the administrator's kubeconfig on the node.
func (n *Node) Kubeconfig() string { return n.file("admin.conf") }

// Logs returns the last lines of the log of each program.
func (n *Node) Logs(lines int) string {
	files, _ := filepath.Glob(n.log("*")) // the pattern is good
	var out strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
		fmt.Fprintf(&out, "== %s\n%s\n", filepath.Base(f), strings.Join(all[max(0, len(all)-lines):], "\n"))
	}
	return out.String()
}

func (n *Node) file(path ...string) string {
	return filepath.Join(append([]string{n.state}, path...)...)
}
func (n *Node) log(name string) string { return n.file("log", name) }
func (n *Node) path() string {
	return n.o.Bin + ":" + n.o.Assets + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
}
