package sandboxd

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/processpb"
)

// groupEnv names the control group that the test is to run in, in a process of its own.
const groupEnv = "SANDBOXD_TEST_GROUP"

// inGroup runs the calling test again in a container's way: in a control group with a
// limit of memory, which is all of /sys/fs/cgroup that it sees. It reports whether
// this is that process already.
func inGroup(t *testing.T, limit int) bool {
	t.Helper()
	const root = "/sys/fs/cgroup"
	if group := os.Getenv(groupEnv); group != "" {
		target := root
		if filepath.Dir(group) != root {
			target = filepath.Dir(group)
		}
		err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte("0"), 0)
		err = errors.Join(err, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount(group, target, "", unix.MS_BIND, ""))
		if err != nil {
			t.Fatal(err)
		}
		return true
	}
	group, file := filepath.Join(root, "memory"), "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		group, file = root, "memory.max"
	}
	group = filepath.Join(group, "sandboxd-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skip("a control group of its own needs root and cgroups that can be written:", err)
	}
	t.Cleanup(func() { eventually(t, "the group is removed", func() bool { return os.Remove(group) == nil }) })
	if err := os.WriteFile(filepath.Join(group, file), []byte(strconv.Itoa(limit)), 0); err != nil {
		t.Skip("there is no controller of memory:", err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), groupEnv+"="+group)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// What uses up the memory is ended, and says why; sandboxd and other commands are not.
func TestOutOfMemoryEndsTheCommand(t *testing.T) {
	if !inGroup(t, 128<<20) {
		return
	}
	var log strings.Builder
	a := newAgent(t, Options{Log: &log})
	other := a.start(shell("read x < " + fifo(t)))
	for _, script := range []string{"exec tail /dev/zero", "tail /dev/zero; exit $?"} {
		r := a.start(shell(script)).wait()
		if r.end == nil || !strings.Contains(r.end.GetError(), ": out of memory: ") {
			t.Errorf("%s: the end is %v", script, r.end)
		}
	}
	if r := a.start(shell("kill -9 $$")).wait(); r.end.GetError() != "signal: killed" {
		t.Errorf("a kill of its own: %v", r.end)
	}
	list, err := a.processes.List(t.Context(), connect.NewRequest(&processpb.ListRequest{}))
	if err != nil || len(list.Msg.GetProcesses()) != 1 || list.Msg.GetProcesses()[0].GetPid() != other.pid {
		t.Errorf("the other command does not run any more: %v, %v", list, err)
	}
	other.cancel()
	other.wait()
	a.stop()
	if strings.Count(log.String(), "out of memory: the kernel ended the command with pid ") != 2 {
		t.Errorf("the log:\n%s", log.String())
	}
}

// A command and what it starts are likelier to be ended than sandboxd, also where that
// is not root and hides its own files in /proc.
func TestScoreOfACommand(t *testing.T) {
	const asNobody = "SANDBOXD_TEST_NOBODY"
	if os.Getenv(asNobody) == "" && os.Geteuid() == 0 {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), asNobody+"=1")
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Pdeathsig: syscall.SIGKILL}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	score, err := strconv.Atoi(strings.TrimSpace(string(own)))
	if err != nil {
		t.Fatal(err)
	}
	want := strconv.Itoa(min(score+100, 1000))
	out, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- Run(ctx, []string{"-address", "127.0.0.1:0", "-open", "-relay-loopback=false"}, stderr, stderr)
	}()
	var url string
	for lines := bufio.NewScanner(out); url == "" && lines.Scan(); {
		if _, at, found := strings.Cut(lines.Text(), " listens on "); found {
			url = "http://" + at
		} else {
			t.Errorf("it says %q", lines.Text())
		}
	}
	client := &http.Client{Transport: &http.Transport{}}
	a := &agent{t: t, url: url, client: client, processes: processpb.NewProcessClient(client, url)}
	r := a.start(shell("cat /proc/$$/oom_score_adj; cat /proc/self/oom_score_adj")).wait()
	if r.stdout.String() != want+"\n"+want+"\n" {
		t.Errorf("%q, want %s twice", r.stdout.String(), want)
	}
	client.CloseIdleConnections()
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("it ends with %d", code)
	}
	_, _ = stderr.Close(), out.Close()
}
