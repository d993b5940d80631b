package binaries

import (
	"bytes"
	"strings"
	"sync"
	"time"
)

// lastLine keeps the end of what a command prints. Safe for concurrent use.
type lastLine struct {
	mu  sync.Mutex
	buf []byte // at most maxKept bytes
}

const maxKept = 4096

// Write keeps the last bytes of p; it never fails.
func (l *lastLine) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, p...)
	if over := len(l.buf) - maxKept; over > 0 {
		l.buf = append(l.buf[:0], l.buf[over:]...)
	}
	return len(p), nil
}

// text is the end of the output on one line.
func (l *lastLine) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return tail(l.buf)
}

// suffix says what the command printed last, if it is about a download.
func (l *lastLine) suffix() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := bytes.TrimSpace(l.buf)
	if i := bytes.LastIndexByte(line, '\n'); i >= 0 {
		line = line[i+1:]
	}
	if rest, ok := strings.CutPrefix(string(line), "go: downloading "); ok {
		return ", last downloaded " + rest
	}
	return ""
}

// every calls f each d until stop is called; f does not run after that.
func every(d time.Duration, f func()) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				f()
			}
		}
	}()
	return func() { close(quit); <-done }
}
