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
	// commandScore is how much higher the score of commands is than sandboxd's, so that the
	// kernel ends a command first when memory is short. It is the score that E2B gives to
	// commands.
	commandScore = 100
	maxScore     = 1000
)

// oomScore starts processes with a higher oom_score_adj than sandboxd has, so that
// a sandbox whose memory is used up loses a command and not its agent.
//
// A process inherits its parent's score, and Go cannot set another one between fork and
// exec; setting it after the start would be too late for the processes that the command has
// started by then. So sandboxd raises its own score during a fork. Neither raising it nor
// going back to the container's score needs a privilege. The zero value starts processes with
// sandboxd's own score.
type oomScore struct {
	mu   sync.Mutex // held while the score is raised: forks are one at a time anyway
	file io.WriteCloser
	own  int
}

// OpenScore opens the file with the score of this process, for Options. A process that is not
// root must do so while it is dumpable: afterwards the file belongs to root. In a container
// without /proc it returns nil and no error.
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

// set sets this process's score. After a failure it does not try again, so that no start
// raises a score that cannot be lowered.
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
