package freeze

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// seen is a process as /proc shows it.
type seen struct {
	process
	parent int
	state  state
	used   uint64 // processor time of all its threads, in clock ticks
}

// state is the state of a process by its threads.
type state int

const (
	running  state = iota // a thread runs, or waits for an event that may come at any time
	inKernel              // no thread runs, and one is in an uninterruptible sleep
	halted                // all threads are stopped, traced or have ended
)

// stateOf reads the letter of proc(5).
func stateOf(letter byte) state {
	switch letter {
	case 'T', 't', 'Z', 'X', 'x':
		return halted
	case 'D':
		return inKernel
	}
	return running
}

// list returns all processes of the namespace by their number; ended reports whether there
// was one more, which was over by the time that its state was read.
func (f *Freezer) list() (all map[int]seen, ended bool, err error) {
	dir, err := os.Open(f.proc)
	if err != nil {
		return nil, false, fmt.Errorf("listing the processes: %w", err)
	}
	names, err := dir.Readdirnames(-1)
	_ = dir.Close()
	if err != nil {
		return nil, false, fmt.Errorf("listing the processes: %w", err)
	}
	all = make(map[int]seen, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		s, err := f.inspect(pid)
		switch {
		case err == nil:
			all[pid] = s
		case gone(err):
			ended = true
		default:
			return nil, false, err
		}
	}
	return all, ended, nil
}

// errGone says that a process has ended.
var errGone = errors.New("the process has ended")

func gone(err error) bool { return errors.Is(err, errGone) }

// inspect reads the state of one process.
func (f *Freezer) inspect(pid int) (seen, error) {
	folder := filepath.Join(f.proc, strconv.Itoa(pid))
	main, err := readStat(filepath.Join(folder, "stat"))
	if err != nil {
		return seen{}, err
	}
	s := seen{process{pid, main.start}, main.parent, main.state, main.used}
	if s.state == running {
		return s, nil
	}
	// The main thread may have ended, or have stopped first.
	tasks, err := os.ReadDir(filepath.Join(folder, "task"))
	if err != nil {
		return seen{}, goneOr(err)
	}
	for _, task := range tasks {
		thread, err := readStat(filepath.Join(folder, "task", task.Name(), "stat"))
		if err == nil {
			s.state = min(s.state, thread.state)
		} else if !gone(err) {
			return seen{}, err
		}
	}
	return s, nil
}

// stat has the used fields of a thread's stat file.
type stat struct {
	state  state
	parent int
	start  uint64
	used   uint64
}

func readStat(path string) (stat, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return stat{}, goneOr(err)
	}
	return parseStat(text)
}

// parseStat reads PID (COMMAND) STATE PPID … UTIME STIME … START: the command may hold
// anything, so what follows begins after the last bracket.
func parseStat(text []byte) (stat, error) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	const letter, parent, utime, stime, start = 0, 1, 11, 12, 19 // of proc(5), less the first two
	if len(fields) <= start || len(fields[letter]) != 1 {
		return stat{}, fmt.Errorf("a process's stat is %q", text)
	}
	s := stat{state: stateOf(fields[letter][0])}
	var inUser, inKernel uint64
	var errs [4]error
	s.parent, errs[0] = strconv.Atoi(string(fields[parent]))
	s.start, errs[1] = strconv.ParseUint(string(fields[start]), 10, 64)
	inUser, errs[2] = strconv.ParseUint(string(fields[utime]), 10, 64)
	inKernel, errs[3] = strconv.ParseUint(string(fields[stime]), 10, 64)
	s.used = inUser + inKernel
	if err := errors.Join(errs[:]...); err != nil {
		return stat{}, fmt.Errorf("a process's stat is %q: %w", text, err)
	}
	return s, nil
}

// goneOr turns the errors of reading a process that has ended into errGone.
func goneOr(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return errGone
	}
	return fmt.Errorf("reading a process: %w", err)
}
