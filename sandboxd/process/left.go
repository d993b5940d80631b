package process

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// left has the outputs of commands that have ended. It takes and drops what others, such as a
// daemon that a killed command has left, still write there: a write to a pipe that nobody reads
// would end them. Its zero value has none; it is safe for concurrent use.
type left struct {
	mu      sync.Mutex // guards closed and files
	closed  bool
	files   map[*os.File]struct{}
	reading sync.WaitGroup
}

// take reads a file until its last writer has closed it, and closes it then.
func (l *left) take(f *os.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = f.Close()
		return
	}
	if l.files == nil {
		l.files = map[*os.File]struct{}{}
	}
	l.files[f] = struct{}{}
	l.reading.Go(func() {
		err := os.ErrDeadlineExceeded // of the time at which it was abandoned
		for errors.Is(err, os.ErrDeadlineExceeded) {
			_ = f.SetReadDeadline(time.Time{})
			_, err = io.Copy(io.Discard, f)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.files, f)
		_ = f.Close()
	})
}

// close closes all files, and those that come later.
func (l *left) close() {
	l.mu.Lock()
	l.closed = true
	for f := range l.files {
		_ = f.Close()
	}
	l.mu.Unlock()
	l.reading.Wait()
}
