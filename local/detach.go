package local

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// reportEnv tells a detached `up` the descriptor it reports its start on.
const reportEnv = "SANDLANE_UP_REPORT"

// message is one line of a detached `up`'s report. The last one has Ready or
// Error.
type message struct {
	Progress string  `json:"progress,omitempty"`
	Ready    *UpFile `json:"ready,omitempty"`
	Error    string  `json:"error,omitempty"`
}

// Detach runs `sandlane up` with args as a process of its own session, relays
// its progress, and returns when it is ready. If it does not get ready, the
// error is its own. When ctx ends before, it is stopped.
func Detach(ctx context.Context, self, stateDir string, args []string, progress func(string)) (UpFile, error) {
	s := newState(stateDir)
	if err := s.create(); err != nil {
		return UpFile{}, err
	}
	pid, err := s.holder()
	if err != nil {
		return UpFile{}, err
	}
	if pid != 0 {
		return UpFile{}, &ErrRunning{StateDir: stateDir, PID: pid}
	}
	if err := os.Rename(s.log("up"), s.log("up")+".1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return UpFile{}, fmt.Errorf("keep the last log of `up`: %w", err)
	}
	log, err := os.OpenFile(s.log("up"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return UpFile{}, fmt.Errorf("open the log of `up`: %w", err)
	}
	defer log.Close()
	in, out, err := os.Pipe()
	if err != nil {
		return UpFile{}, fmt.Errorf("detach `up`: %w", err)
	}
	defer in.Close()
	cmd := exec.Command(self, append([]string{"up", "--state", stateDir}, args...)...)
	cmd.Env = append(os.Environ(), reportEnv+"=3")
	cmd.ExtraFiles = []*os.File{out}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	out.Close()
	if err != nil {
		return UpFile{}, fmt.Errorf("detach `up`: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	up, err := relay(in, progress)
	if err == nil {
		return up, cmd.Process.Release()
	}
	_ = cmd.Wait() // it ends by itself after an error
	if errors.Is(err, errSilent) {
		err = fmt.Errorf("`sandlane up` ended without a word (%s); its log is %s", cmd.ProcessState, s.log("up"))
	}
	return UpFile{}, err
}

var errSilent = errors.New("the report ended")

// relay passes progress on until the report says how the start went.
func relay(in io.Reader, progress func(string)) (UpFile, error) {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return UpFile{}, errSilent
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			return UpFile{}, fmt.Errorf("understand the report of `up`: %w", err)
		}
		switch {
		case m.Ready != nil:
			return *m.Ready, nil
		case m.Error != "":
			return UpFile{}, errors.New(m.Error)
		default:
			progress(m.Progress)
		}
	}
}

// Reporter tells the process that detached this one how the start goes. Its
// methods may be called on nil, which reports nothing, and never fail: the process
// that detached may be gone. Not safe for concurrent use.
type Reporter struct{ out *os.File }

// NewReporter returns the reporter of a detached `up`, nil for any other. Call
// it before any child is started: children must not see the report.
func NewReporter() *Reporter {
	fd, err := strconv.Atoi(os.Getenv(reportEnv))
	if err != nil {
		return nil
	}
	_ = os.Unsetenv(reportEnv)
	syscall.CloseOnExec(fd)
	return &Reporter{os.NewFile(uintptr(fd), "report")}
}

// Progress relays a line.
func (r *Reporter) Progress(line string) { r.send(message{Progress: line}) }

// Ready ends the report: everything runs.
func (r *Reporter) Ready(up UpFile) {
	r.send(message{Ready: &up})
	r.close()
}

// Failed ends the report, if it has not ended yet.
func (r *Reporter) Failed(err error) {
	r.send(message{Error: strings.TrimSpace(err.Error())})
	r.close()
}

func (r *Reporter) send(m message) {
	if r == nil || r.out == nil {
		return
	}
	if b, err := json.Marshal(m); err == nil {
		_, _ = r.out.Write(append(b, '\n'))
	}
}

func (r *Reporter) close() {
	if r != nil && r.out != nil {
		r.out.Close()
		r.out = nil
	}
}
