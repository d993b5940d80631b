package binaries

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"time"
)

// staleMark is what `go list` prints for a package that is to be compiled.
const staleMark = "is to be compiled"

// output follows what Go prints: how many packages are to be compiled, how many were begun,
// and the end of it. Safe for concurrent use.
type output struct {
	mu           sync.Mutex
	buf          []byte // at most maxKept bytes
	line         []byte // that has not ended; at most maxKept bytes
	stale, begun int
	last         string // package or download
}

const maxKept = 4096

// Write looks at the lines of p and keeps its last bytes; it never fails.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = append(o.buf, p...)
	if over := len(o.buf) - maxKept; over > 0 {
		o.buf = append(o.buf[:0], o.buf[over:]...)
	}
	for rest := p; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		if len(o.line)+len(line) <= maxKept {
			o.line = append(o.line, line...)
		}
		if ended {
			o.read(string(o.line))
			o.line = o.line[:0]
		}
		rest = after
	}
	return len(p), nil
}

func (o *output) read(line string) {
	switch {
	case line == staleMark:
		o.stale++
	case strings.HasPrefix(line, "go: downloading "):
		o.last = "downloading " + strings.TrimPrefix(line, "go: downloading ")
	case line != "" && !strings.ContainsAny(line, " :\t"): // a package of `go build -v`
		o.begun++
		o.last = "compiling " + line
	}
}

// text is the end of the output on one line.
func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return tail(o.buf)
}

// now says what Go does: ", 120 of 1300 packages, compiling k8s.io/api/core/v1".
func (o *output) now() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var said string
	if o.begun > 0 {
		said = fmt.Sprintf(", %d of %d packages", o.begun, max(o.begun, o.stale))
	}
	if o.last != "" {
		said += ", " + o.last
	}
	return said
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
