package e2e

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/orphans"
	"github.com/sandlane/sandlane/test/stack"
)

// bridgeOf finds the mark of a stack in the name of its bridge.
var bridgeOf = regexp.MustCompile(`^link sl([0-9a-f]{8})br$`)

// leftovers lists what is on the machine and was not before the stack in this state
// folder started: mounts, links, network namespaces, cgroups and sockets, and the
// processes that name the folder. What has the mark or the folder of another stack is
// that stack's: its pods come and go meanwhile. Locks of networks stay, for good.
func leftovers(t *testing.T, state string, before map[string]bool) []string {
	t.Helper()
	theirs := append(othersThan(t, state), "/run/sandlane/subnet-")
	for item := range before {
		if bridge := bridgeOf.FindStringSubmatch(item); bridge != nil {
			theirs = append(theirs, bridge[1])
		}
	}
	var left []string
	for item := range machine(t) {
		if !before[item] && !slices.ContainsFunc(theirs, func(name string) bool { return strings.Contains(item, name) }) {
			left = append(left, item)
		}
	}
	for _, p := range processes(t) {
		if strings.Contains(p, state) {
			left = append(left, "process "+p)
		}
	}
	sort.Strings(left)
	return left
}

// machine lists links, mounts, named network namespaces, cgroups and sockets.
func machine(t *testing.T) map[string]bool {
	t.Helper()
	items := map[string]bool{}
	links, err := os.ReadDir("/sys/class/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		items["link "+l.Name()] = true
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		items["mount "+strings.Fields(line)[1]] = true
	}
	for _, pattern := range []string{"/run/netns/*", "/var/run/netns/*", "/sys/fs/cgroup/*/sandlane*", "/sys/fs/cgroup/*/*/sandlane*", "/sys/fs/cgroup/sandlane*", "/tmp/sandlane-*/*.sock", "/run/sandlane*/*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			items["file "+f] = true
		}
	}
	return items
}

// processes lists the command lines of all processes but this one.
func processes(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, d := range dirs {
		if d == fmt.Sprintf("/proc/%d/cmdline", os.Getpid()) {
			continue
		}
		data, err := os.ReadFile(d)
		if err == nil && len(data) > 0 {
			all = append(all, strings.ReplaceAll(string(data), "\x00", " "))
		}
	}
	return all
}

// wantClean waits up to 5 s until nothing is left of the stack.
func wantClean(t *testing.T, state string, before map[string]bool) {
	t.Helper()
	shared.Eventually(t, 5*time.Second, "nothing to be left behind", func() (bool, string) {
		left := leftovers(t, state, before)
		return len(left) == 0, strings.Join(left, "\n")
	})
}

func stateDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sandlane-life-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Ctrl-C, down and the next up after a kill -9 of everything each leave the
// machine as it was; a second stack runs beside the first.
func TestStartAndStop(t *testing.T) {
	t.Parallel()
	takeTurn(t)
	t.Run("down", func(t *testing.T) {
		state, before := stateDir(t), machine(t)
		s := start(t, state)
		if s.Up.GatewayURL == shared.Up.GatewayURL {
			t.Fatalf("two stacks on %s", s.Up.GatewayURL)
		}
		if a := s.Do(t, nil, stack.Request{ID: "beside"}); a.Echo == nil {
			t.Errorf("the second stack: %v", a)
		}
		if _, found := shared.Sandbox(t, "beside"); found {
			t.Error("a sandbox of one stack shows in the other")
		}
		if out, err := s.Run(t.Context(), "status"); err != nil {
			t.Errorf("status: %v\n%s", err, out)
		}
		out, err := s.Run(t.Context(), "up", "-d", "--port", "0")
		if err == nil || !strings.Contains(out, "running") {
			t.Errorf("a second up with the same state folder: %v\n%s", err, out)
		}
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		wantClean(t, state, before)
		if out, err := s.Run(t.Context(), "status"); err == nil {
			t.Errorf("status of a stopped stack is a success:\n%s", out)
		}
	})
	t.Run("ctrl-c", func(t *testing.T) {
		state, before := stateDir(t), machine(t)
		bin, err := stack.Binary()
		if err != nil {
			t.Fatal(err)
		}
		log, err := os.Create(filepath.Join(t.TempDir(), "up.txt"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = log.Close() }()
		cmd := exec.CommandContext(t.Context(), bin, "up", "--state", state, "--port", "0", "--pool-size", "2")
		tee, stderr, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(log, tee) }()
		cmd.Stdout, cmd.Stderr = log, stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		forget, err := orphans.Stop(bin, "down", "--state", state)
		if err != nil {
			t.Fatal(err)
		}
		defer forget()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		shared.Eventually(t, 2*time.Minute, "the stack to be up", func() (bool, string) {
			out, _ := os.ReadFile(log.Name())
			return strings.Contains(string(out), "Sandlane is up"), string(out)
		})
		// A terminal sends SIGINT to the whole foreground group, and so ends also a tee that reads
		// the output.
		_, _ = stderr.Close(), tee.Close()
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case err := <-done:
			if err != nil {
				out, _ := os.ReadFile(log.Name())
				t.Errorf("up ended with %v\n%s", err, out)
			}
		case <-time.After(time.Minute):
			t.Fatal("up did not end within a minute of Ctrl-C")
		}
		wantClean(t, state, before)
	})
	t.Run("kill -9", func(t *testing.T) {
		state, before := stateDir(t), machine(t)
		s := start(t, state)
		first := s.Do(t, nil, stack.Request{ID: "killed"})
		if first.Echo == nil {
			t.Fatalf("before the kill: %v", first)
		}
		for name, pid := range s.Up.Pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Logf("kill %s: %v", name, err)
			}
		}
		upPid := upProcess(t, s)
		if err := syscall.Kill(upPid, syscall.SIGKILL); err != nil {
			t.Fatalf("kill up: %v", err)
		}
		s = start(t, state)
		a := s.Do(t, nil, stack.Request{ID: "after"})
		if a.Echo == nil {
			t.Errorf("after the kill: %v", a)
		}
		b := s.Do(t, nil, stack.Request{ID: "killed"})
		if b.Echo != nil && b.Echo.Process == first.Echo.Process {
			t.Errorf("the killed process still answers")
		}
		if b.Echo != nil && a.Echo != nil && b.Echo.PodUID == a.Echo.PodUID {
			t.Errorf("two sandboxes in one pod")
		}
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		wantClean(t, state, before)
	})
}

// upProcess finds the pid of the stack's `sandlane up` from status.
func upProcess(t *testing.T, s *stack.Stack) int {
	t.Helper()
	dirs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, d := range dirs {
		data, err := os.ReadFile(d)
		if err != nil {
			continue
		}
		args := strings.Split(string(data), "\x00")
		if len(args) > 1 && args[1] == "up" && strings.Contains(string(data), s.State) {
			var pid int
			if _, err := fmt.Sscanf(d, "/proc/%d/cmdline", &pid); err == nil {
				return pid
			}
		}
	}
	t.Fatal("no `sandlane up` runs for " + s.State)
	return 0
}
