package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	maxLog = 10 << 20
	// logLinger is how long the output of a process that has ended is waited for while a process
	// that it started holds it open.
	logLinger = time.Second
	// tailLines is how much of its log a process shows that does not start.
	tailLines = 20
	tailBytes = 16 << 10
)

// logFile is a log that is appended to, and moved to path.1 whenever it is larger than maxLog.
type logFile struct {
	path string
	file *os.File
	size int64
}

// openLog opens a log. Its size is where the next process begins.
func openLog(path string) (*logFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of logs: %w", err)
	}
	l := &logFile{path: path}
	if err := l.open(); err != nil {
		return nil, err
	}
	if err := l.rotate(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *logFile) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open a log: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("open a log: %w", err)
	}
	l.file, l.size = f, st.Size()
	return nil
}

// rotate moves the log away if it is large.
func (l *logFile) rotate() error {
	if l.size <= maxLog {
		return nil
	}
	if err := os.Rename(l.path, l.path+".1"); err != nil && !errors.Is(err, os.ErrNotExist) { // moved by a try that could open no new one
		return fmt.Errorf("rotate a log: %w", err)
	}
	old := l.file
	if err := l.open(); err != nil {
		return err // it goes on in the old file
	}
	old.Close()
	return nil
}

// Write appends to the log, which it rotates between two lines. It never fails: a process must
// not end, or block on its output, because a disk is full.
func (l *logFile) Write(p []byte) (int, error) {
	rest := p
	if l.size+int64(len(p)) > maxLog {
		line := bytes.LastIndexByte(p, '\n') + 1
		l.append(p[:line])
		rest = p[line:]
		if line > 0 {
			_ = l.rotate()
		}
	}
	l.append(rest)
	return len(p), nil
}

func (l *logFile) append(p []byte) {
	n, _ := l.file.Write(p)
	l.size += int64(n)
}

func (l *logFile) Close() { l.file.Close() }

// tail returns the last lines of a log, none of before offset from.
func tail(path string, from int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil {
		if st.Size() < from {
			from = 0 // it was rotated since
		}
		from = max(from, st.Size()-tailBytes)
	}
	b, err := io.ReadAll(io.NewSectionReader(f, from, tailBytes))
	if err != nil {
		return ""
	}
	text := strings.TrimRight(string(b), "\n")
	if text == "" {
		return ""
	}
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
