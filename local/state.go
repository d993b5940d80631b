package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/access"
)

// The state folder:
//
// Everything but the route tables lies in one state folder, sockets too, so that its path
// must be short: a folder elsewhere would have a name that other users can guess. A lock on <state>/up.lock
// says that an `up` runs, and holds its PID and start time. Only the holder of the lock writes
// in the folder. What a killed `up` left is removed by the next holder, be it
// `up` or `down`. The cluster's content lives as long as its `up`: each begins
// with an empty etcd, new certificates and a new API key. Logs stay, those of containers until
// the next `up`.

// state is the layout of a state folder.
type state struct {
	dir string // absolute
	run string // sockets and the list of processes
}

// longestDir is the longest path, in bytes, of a state folder: a socket's path has at most
// 107, and the longest one here is that of "/run/gateway-99/envoy-admin.sock".
const longestDir = 107 - 32

// newState computes paths; it creates nothing.
func newState(dir string) state {
	return state{dir: dir, run: filepath.Join(dir, "run")}
}

func (s state) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}
func (s state) log(name string) string { return s.path("logs", name+".log") }
func (s state) pki(name string) string { return s.path("cluster", "pki", name) }
func (s state) kubeconfig() string     { return s.path("kubeconfig") }
func (s state) accountKubeconfig(p access.Process) string {
	return s.path("cluster", string(p)+".kubeconfig")
}
func (s state) checkpoints() string         { return s.path("checkpoints") }
func (s state) auditLog() string            { return s.path("audit.log") }
func (s state) upFile() string              { return s.path("up.json") }
func (s state) lockFile() string            { return s.path("up.lock") }
func (s state) controlSocket() string       { return filepath.Join(s.run, "up.sock") }
func (s state) processFile() string         { return filepath.Join(s.run, "processes.json") }
func (s state) gatewayRun(gw string) string { return filepath.Join(s.run, gw) }

// create makes the state folder and checks that it can be used.
func (s state) create() error {
	if n := len(s.dir); n > longestDir {
		return fmt.Errorf("the path of the state folder %s is %d bytes long, and with more than %d its sockets cannot be made: choose another with --state", s.dir, n, longestDir)
	}
	if st, err := os.Stat(s.dir); err == nil && !st.IsDir() {
		return fmt.Errorf("the state folder %s is a file: choose another with --state", s.dir)
	}
	if err := os.MkdirAll(s.path("logs"), 0o700); err != nil {
		return fmt.Errorf("the state folder %s cannot be used (%w): choose another with --state", s.dir, err)
	}
	if err := unix.Access(s.dir, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("the state folder %s cannot be read and written (%w): choose another with --state", s.dir, err)
	}
	return nil
}

// createRun makes an empty run folder that no other user can write in.
func (s state) createRun() error {
	if err := os.RemoveAll(s.run); err != nil {
		return fmt.Errorf("empty the run folder: %w", err)
	}
	if err := os.Mkdir(s.run, 0o700); err != nil { // not MkdirAll: it must be new
		return fmt.Errorf("make the run folder: %w", err)
	}
	return nil
}

// ErrRunning says that an `up` with this state folder runs.
type ErrRunning struct {
	StateDir string
	// PID is 0 if the other one has not written it yet.
	PID int
}

func (e *ErrRunning) Error() string {
	return fmt.Sprintf("Sandlane is already running with the state folder %s (pid %d): stop it with `sandlane down`, or choose another folder with --state", e.StateDir, e.PID)
}

// ErrNotRunning says that no `up` with this state folder runs.
type ErrNotRunning struct{ StateDir string }

func (e *ErrNotRunning) Error() string {
	return fmt.Sprintf("Sandlane is not running with the state folder %s: start it with `sandlane up`", e.StateDir)
}

// patience is how long a lock that is held may still be let go: the kernel
// frees that of a killed process only after it has ended its children.
const (
	patience      = 500 * time.Millisecond
	patienceDying = 5 * time.Second
)

// errUnnamed says that the holder of the lock has not written what it is.
var errUnnamed = errors.New("try again")

// thisProcess is what an `up` writes in the lock's file.
func thisProcess() string { return fmt.Sprintf("%d %s\n", os.Getpid(), startTime(os.Getpid())) }

// lock takes the lock of the state folder, for as long as this process lives
// or until unlock. An *ErrRunning names the holder. holder is thisProcess for an `up`, and
// empty for a process that `down` must not signal.
func (s state) lock(holder string) (unlock func(), err error) {
	if pid, err := s.holder(); err != nil || pid != 0 {
		return nil, errors.Join(err, running(s.dir, pid))
	}
	f, err := os.OpenFile(s.lockFile(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the state folder %s cannot be used: %w", s.dir, err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) { // another process was faster
		f.Close()
		pid, _ := s.lockHolder()
		return nil, &ErrRunning{StateDir: s.dir, PID: pid}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the state folder: %w", err)
	}
	if err := errors.Join(f.Truncate(0), writeAt(f, holder)); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the state folder: %w", err)
	}
	return func() { f.Close() }, nil
}

// running is an *ErrRunning, or nil for no PID.
func running(dir string, pid int) error {
	if pid == 0 {
		return nil
	}
	return &ErrRunning{StateDir: dir, PID: pid}
}

// holder is running for a process that wants the lock: it gives a holder that is just
// ending the time to do so.
func (s state) holder() (int, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		pid, err := s.running()
		if pid == 0 && !errors.Is(err, errUnnamed) {
			return 0, err
		}
		wait := patience
		if pid != 0 && startTime(pid) == "" {
			wait = patienceDying
		}
		if time.Since(began) > wait {
			return pid, err
		}
	}
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// running returns the PID of the `up` that holds the lock, or 0. It neither
// creates nor changes anything.
func (s state) running() (int, error) {
	f, err := os.Open(s.lockFile())
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("the state folder %s cannot be used: %w", s.dir, err)
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		if pid, _ := s.lockHolder(); pid > 0 {
			return pid, nil
		}
		return 0, fmt.Errorf("an `up` with the state folder %s is just starting, or a `down` is removing what one left: %w", s.dir, errUnnamed)
	}
	return 0, nil
}

// lockHolder is the process that the lock's file names, with its start time as recorded has it;
// 0 for none.
func (s state) lockHolder() (pid int, start string) {
	b, err := os.ReadFile(s.lockFile())
	if err != nil {
		return 0, ""
	}
	first, start, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	pid, _ = strconv.Atoi(first)
	return pid, start
}

// writeFile replaces a file at once: readers see the old or the new content.
func writeFile(path string, content []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, content, mode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
