package process

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
)

const (
	// commandScore is how much likelier the kernel ends a command than sandboxd when
	// memory is short. It is E2B's value for commands, whose agent's score is lower.
	commandScore = 100
	maxScore     = 1000
)

// oomScore starts processes with a higher oom_score_adj than sandboxd has, so that
// a sandbox whose memory is used up loses a command and not its agent.
//
// A process inherits its parent's score, and there is no place between fork and exec
// to set another; one that was set after the start would come too late for what the
// command has started by then. So sandboxd takes on the higher score for the length
// of a fork. Raising it needs no privilege, nor does going back to what the container
// was given. Its zero value starts processes with sandboxd's own score.
type oomScore struct {
	mu   sync.Mutex // held while the score is raised: forks are one at a time anyway
	file io.WriteCloser
	own  int
}

// OpenScore opens the score of this process for Options. A process that is not root must
// do so while it is dumpable: afterwards the file is root's. In a container without
// /proc there is none: nil, and no error.
func OpenScore() (*os.File, error) {
	file, err := os.OpenFile("/proc/self/oom_score_adj", os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) { // a container without /proc
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening the score for lack of memory: %w", err)
	}
	return file, nil
}

// newOOMScore reads sandboxd's own score from an open file, and takes the file over.
func newOOMScore(file *os.File) (*oomScore, error) {
	if file == nil {
		return &oomScore{}, nil
	}
	text := make([]byte, 16)
	n, err := file.Read(text)
	own := 0
	if err == nil {
		own, err = strconv.Atoi(strings.TrimSpace(string(text[:n])))
	}
	if err != nil {
		_ = file.Close()
		return &oomScore{}, fmt.Errorf("reading the score for lack of memory: %w", err)
	}
	return &oomScore{file: file, own: own}, nil
}

// start calls a function that forks, with the commands' score.
func (s *oomScore) start(fork func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return fork()
	}
	if !s.set(min(s.own+commandScore, maxScore)) {
		return fork()
	}
	defer s.set(s.own)
	return fork()
}

// set sets this process's score. Once that fails it is left alone: the next start
// must not raise what cannot be lowered again.
func (s *oomScore) set(score int) bool {
	if s.file == nil {
		return false
	}
	if _, err := io.WriteString(s.file, strconv.Itoa(score)); err != nil {
		_ = s.file.Close()
		s.file = nil
		return false
	}
	return true
}

// close ends the use of the file.
func (s *oomScore) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		_ = s.file.Close()
		s.file = nil
	}
}
