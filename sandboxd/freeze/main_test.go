package freeze

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/reap"
)

// Started again with this variable the test is a container: its first process reaps, and
// the second, the freezer, does what it reads.
const asContainer = "FREEZE_TEST_CONTAINER"

// With this one it is a supervisor, see supervise.
const asSupervisor = "FREEZE_TEST_SUPERVISOR"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asSupervisor) != "":
		supervise(os.Getenv(asSupervisor))
	case os.Getenv(asContainer) == "":
		goleak.VerifyTestMain(m)
	case os.Getpid() == 1:
		if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
			fmt.Println("mount:", err)
			os.Exit(1)
		}
		code, _ := reap.Run("/proc/self/exe", os.Args)
		os.Exit(code)
	default:
		os.Exit(serve())
	}
}

// serve does one line after the other: "freeze", "thaw", "run SCRIPT" in the background,
// "pty SCRIPT" the same on a terminal whose output goes to ./pty, "supervise",
// "refreeze", "kill", "atonce", after which a freeze stops all at once, and "sh SCRIPT" and
// its output. Each is answered with one line.
func serve() int {
	f := New()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		word, script, _ := strings.Cut(lines.Text(), " ")
		answer, err := "", error(nil)
		switch word {
		case "freeze":
			begun := time.Now()
			// Far longer than an order's two seconds, after which a gateway tries again: on two
			// processors with twenty other busy processes one freeze took a second.
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			err = f.Freeze(ctx)
			cancel()
			answer = time.Since(begun).String()
		case "refreeze":
			var escaped bool
			escaped, err = f.Refreeze(context.Background())
			answer = fmt.Sprint(escaped)
		case "thaw":
			err = f.Thaw()
		case "atonce":
			f.inOrder = -1
		case "kill":
			err = f.Kill()
		case "run":
			cmd := exec.Command("/bin/bash", "-c", script)
			cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
			answer, err = start(cmd)
		case "supervise":
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), asSupervisor+"=heard")
			answer, err = start(cmd)
		case "pty":
			var terminal, to *os.File
			to, err = os.Create("pty")
			if err == nil {
				terminal, err = pty.Start(exec.Command("/bin/bash", "--norc", "-ic", script))
			}
			if err == nil {
				go func() { _, _ = io.Copy(to, terminal) }()
			}
		case "sh":
			var out []byte
			out, err = exec.Command("/bin/bash", "-c", script).CombinedOutput()
			answer = strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "|")
		}
		if err != nil {
			answer = "error: " + err.Error()
		}
		fmt.Println(answer)
	}
	return 0
}

// start starts a command and reaps it.
func start(cmd *exec.Cmd) (pid string, err error) {
	if err := cmd.Start(); err != nil {
		return "", err
	}
	go func() { _ = cmd.Wait() }()
	return fmt.Sprint(cmd.Process.Pid), nil
}

// supervise has eight children and writes to a file which of them it hears stop.
func supervise(file string) {
	for range 8 {
		if err := exec.Command("/bin/bash", "-c", "while :; do :; done").Start(); err != nil {
			panic(err)
		}
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WUNTRACED, nil)
		if err == unix.EINTR {
			continue
		}
		heard, _ := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		_, _ = fmt.Fprintf(heard, "process %d: %x, %v\n", pid, status, err)
		_ = heard.Close()
	}
}

// container is a freezer in a PID namespace of its own.
type container struct {
	t    *testing.T
	in   *os.File
	out  *os.File
	said *bufio.Scanner // what comes from out
}

func newContainer(t *testing.T) *container {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make a PID namespace")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Dir = append(os.Environ(), asContainer+"=1"), t.TempDir()
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = read, stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = read.Close(), stdout.Close()
	t.Cleanup(func() {
		_, _ = write.Close(), out.Close()
		_ = cmd.Process.Kill() // PID 1: all of the namespace goes with it
		_ = cmd.Wait()
	})
	return &container{t, write, out, bufio.NewScanner(out)}
}

// maxAnswer is how long a container may take for one line.
const maxAnswer = time.Minute

// do sends one line and returns the answer.
func (c *container) do(line string) string {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.in, line); err != nil {
		c.t.Fatal(err)
	}
	if err := c.out.SetReadDeadline(time.Now().Add(maxAnswer)); err != nil {
		c.t.Fatal(err)
	}
	if !c.said.Scan() {
		c.t.Fatalf("%s: no answer: %v", line, c.said.Err())
	}
	return c.said.Text()
}

// want does it and fails on an error.
func (c *container) want(line string) string {
	c.t.Helper()
	answer := c.do(line)
	if strings.HasPrefix(answer, "error:") {
		c.t.Fatalf("%s: %s", line, answer)
	}
	return answer
}
