package sudo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandlane/sandlane/sandboxd/process"
	"github.com/sandlane/sandlane/sandboxd/users"
)

// patience bounds every wait of these tests; it is never waited for in full.
const patience = 20 * time.Second

// clientSocket makes the test binary the command sudo: its value is the socket.
const clientSocket = "SUDO_TEST_SOCKET"

func TestMain(m *testing.M) {
	if socket := os.Getenv(clientSocket); socket != "" {
		_ = os.Unsetenv(clientSocket)
		os.Exit(run(socket, os.Args[1:], [streams]*os.File{os.Stdin, os.Stdout, os.Stderr}))
	}
	goleak.VerifyTestMain(m)
}

// The users of the tests' sandbox: the default one and another.
const worker, other = 1234, 1235

type sandbox struct {
	t      *testing.T
	server *Server
	socket string
	binary string // the command sudo, which every user may run
	dir    string // everyone's
}

type database struct{ users.Database }

func (d database) Named(name string) (users.User, error) {
	if name == "" {
		name = "worker"
	}
	return d.Lookup(name)
}

func (d database) Names(uid, gid uint32) (string, string) { return d.Name(uid), d.GroupName(gid) }

// newSandbox starts a server on a real socket. It needs root.
func newSandbox(t *testing.T) *sandbox {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("running commands as another user needs root")
	}
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &sandbox{t: t, socket: dir + "/run/sudo.sock", binary: dir + "/sudo", dir: dir}
	text, err := os.ReadFile(self)
	if err := errors.Join(err, os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o777), os.WriteFile(s.binary, text, 0o755),
		os.Mkdir(dir+"/db", 0o755), os.Mkdir(dir+"/home", 0o755), os.Chown(dir+"/home", worker, worker),
		os.WriteFile(dir+"/db/passwd", []byte("root:x:0:0::/root:/bin/sh\nworker:x:1234:1234::"+dir+"/home:/bin/sh\nother:x:1235:1235::/:/bin/sh\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	processes := process.New(nil, process.Options{})
	s.server, err = Listen(s.socket, Options{Users: database{users.Database{Dir: dir + "/db"}}, Processes: processes, Path: "/usr/bin:/bin"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.close(time.Millisecond)
		processes.Close(t.Context())
	})
	return s
}

func (s *sandbox) close(grace time.Duration) {
	if s.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	s.server.Close(ctx)
	s.server = nil
}

// sudo is the command, run by a user with these variables.
func (s *sandbox) sudo(uid uint32, env []string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	s.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, s.binary, args...)
	cmd.Dir = s.dir
	cmd.Env = append(slices.Clone(env), clientSocket+"="+s.socket, "GORACE=atexit_sleep_ms=0") // a second each with -race else
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// output runs it and returns its exit code and what it wrote.
func (s *sandbox) output(cmd *exec.Cmd) (int, string, string) {
	s.t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		s.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// What a command does is what the caller sees, in its folder and with its streams.
func TestCommands(t *testing.T) {
	s := newSandbox(t)
	caller := []string{"HOME=/h", "TERM=vt", "LC_TIME=C", "SECRET=x", "SHELL=/bin/sh"}
	for _, c := range []struct {
		what string
		uid  uint32
		args []string
		code int
		out  string
	}{
		{"root by default", worker, []string{"id", "-u"}, 0, "0\n"},
		{"root asks too", 0, []string{"id", "-u"}, 0, "0\n"},
		{"another user", worker, []string{"-u", "other", "sh", "-c", "id -u; id -G"}, 0, "1235\n1235\n"},
		{"another user by number", worker, []string{"-u", "#1235", "id", "-u"}, 0, "1235\n"},
		{"an exit code", worker, []string{"sh", "-c", "exit 7"}, 7, ""},
		{"a signal", worker, []string{"sh", "-c", "kill -TERM $$"}, 128 + 15, ""},
		{"no such command", worker, []string{"no-such-command"}, 1, ""},
		{"no such user", worker, []string{"-u", "nobody-here", "true"}, 1, ""},
		{"the folder", worker, []string{"pwd"}, 0, s.dir + "\n"},
		{"variables", worker, []string{"sh", "-c", "echo $HOME $USER $LOGNAME $TERM $LC_TIME $SECRET"}, 0, "/root root root vt C\n"},
		{"all variables", worker, []string{"-E", "sh", "-c", "echo $HOME $USER $SECRET $PATH"}, 0, "/h root x /usr/bin:/bin\n"},
		{"all but the home", worker, []string{"-EH", "sh", "-c", "echo $HOME $SECRET"}, 0, "/root x\n"},
		{"one variable", worker, []string{"--preserve-env=SECRET", "sh", "-c", "echo $SECRET $HOME"}, 0, "x /root\n"},
		{"a variable of the command line", worker, []string{"A=1 2", "HOME=/x", "sh", "-c", "echo $A $HOME"}, 0, "1 2 /x\n"},
		{"the caller's names", worker, []string{"sh", "-c", "echo $SUDO_USER $SUDO_UID $SUDO_GID $SUDO_COMMAND"}, 0, "worker 1234 1234 /usr/bin/sh -c echo $SUDO_USER $SUDO_UID $SUDO_GID $SUDO_COMMAND\n"},
		{"a shell with a command", worker, []string{"-s", "echo", "a;b", "$USER"}, 0, "a;b root\n"},
		{"a login shell", worker, []string{"-iu", "worker", "pwd"}, 0, s.dir + "/home\n"},
		{"may it ask", worker, []string{"-v"}, 0, ""},
		{"what is not UTF-8", worker, []string{"printf", "%s", "\xff"}, 0, "\xff"},
	} {
		code, out, errs := s.output(s.sudo(c.uid, caller, c.args...))
		if code != c.code || out != c.out || (code == 1) != strings.HasPrefix(errs, "sudo: ") {
			t.Errorf("%s: sudo %q: %d %q %q, want %d %q", c.what, c.args, code, out, errs, c.code, c.out)
		}
	}
}

// A user that is neither root nor the default one runs nothing.
func TestOthersAreRefused(t *testing.T) {
	s := newSandbox(t)
	for _, args := range [][]string{{"touch", s.dir + "/made"}, {"-u", "other", "touch", s.dir + "/made"}, {"-v"}} {
		code, _, errs := s.output(s.sudo(other, nil, args...))
		if code != 1 || errs != "sudo: user other may not use sudo in this sandbox: only root and worker may\n" {
			t.Errorf("sudo %v: %d %q", args, code, errs)
		}
	}
	if _, err := os.Stat(s.dir + "/made"); err == nil {
		t.Error("the command has run")
	}
}

// A command reads what is piped to it, and its reader sees the end.
func TestPipes(t *testing.T) {
	s := newSandbox(t)
	cmd := s.sudo(worker, nil, "tr", "a-z", "A-Z")
	text := strings.Repeat("abc\n", 100_000)
	cmd.Stdin = strings.NewReader(text)
	if code, out, errs := s.output(cmd); code != 0 || out != strings.ToUpper(text) {
		t.Errorf("%d, %d bytes, %q", code, len(out), errs)
	}
	cmd = s.sudo(worker, nil, "sh", "-c", "sleep 1000 > /dev/null 2>&1 & echo $!")
	code, out, errs := s.output(cmd)
	if code != 0 || errs != "" {
		t.Fatalf("a command that leaves another behind: %d %q", code, errs)
	}
	left, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil || syscall.Kill(left, 0) != nil {
		t.Errorf("the one left behind, %q, does not run: %v", out, err)
	}
	_ = syscall.Kill(left, syscall.SIGKILL)
}

// holder starts a sudo whose command holds its output open, and returns when it runs.
func (s *sandbox) holder(script string) (*exec.Cmd, *os.File) {
	s.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = r.Close() })
	cmd := s.sudo(worker, nil, "sh", "-c", script)
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	_ = w.Close()
	begun := make([]byte, 6)
	_ = r.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(r, begun); err != nil || string(begun) != "begun\n" {
		s.t.Fatalf("%q %v", begun, err)
	}
	return cmd, r
}

// A client that is killed takes its command with it, and all of the command's group.
func TestKilledClient(t *testing.T) {
	s := newSandbox(t)
	cmd, r := s.holder("trap '' TERM HUP; sleep 1000 & echo begun; wait; sleep 1000")
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 { // ends when nothing holds the pipe
		t.Errorf("the command goes on: %q %v", rest, err)
	}
}

func TestSignals(t *testing.T) {
	s := newSandbox(t)
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, forwarded...) // or under nohup the commands of this test would ignore SIGHUP
	defer signal.Stop(heard)
	for _, sig := range forwarded {
		number := int(sig.(syscall.Signal))
		cmd, r := s.holder("trap 'echo heard; exit 9' " + strconv.Itoa(number) + "; echo begun; while :; do sleep 0.01; done")
		_ = cmd.Process.Signal(sig)
		rest, _ := io.ReadAll(r)
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 9 || string(rest) != "heard\n" {
			t.Errorf("%v: %v, %q", sig, err, rest)
		}
	}
}

// At the end of sandboxd commands may end by themselves; then they are killed.
func TestClose(t *testing.T) {
	for script, want := range map[string]int{
		"trap 'exit 3' TERM; echo begun; while :; do sleep 0.01; done": 3,
		"trap '' TERM; echo begun; while :; do sleep 0.01; done":       128 + 9,
	} {
		s := newSandbox(t)
		cmd, _ := s.holder(script)
		idle, err := net.Dial("unix", s.socket) // asks for nothing, and holds nothing up
		if err != nil {
			t.Fatal(err)
		}
		grace := patience
		if want > 128 {
			grace = 50 * time.Millisecond
		}
		s.close(grace)
		_ = idle.Close()
		if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != want {
			t.Errorf("%s: %v, want %d", script, cmd.ProcessState, want)
		}
		if code, _, errs := s.output(s.sudo(worker, nil, "true")); code != 1 || !strings.Contains(errs, "sandboxd runs no commands for sudo") {
			t.Errorf("after the end: %d %q", code, errs)
		}
	}
}

// What is no request is answered with an error, and the server goes on.
func TestNoRequest(t *testing.T) {
	s := newSandbox(t)
	for what, text := range map[string]string{"no descriptors": "\x00\x00\x00\x02{}", "too long": "\xff\xff\xff\xff", "too short": "\x00", "nothing": ""} {
		conn, err := net.Dial("unix", s.socket)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.(*net.UnixConn).CloseWrite()
		got, _ := io.ReadAll(conn)
		_ = conn.Close()
		if !strings.Contains(string(got), `"Error":"reading the request`) {
			t.Errorf("%s: %q", what, got)
		}
	}
	if code, _, errs := s.output(s.sudo(worker, nil, "true")); code != 0 {
		t.Errorf("afterwards: %d %q", code, errs)
	}
}
