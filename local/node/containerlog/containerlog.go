// Package containerlog writes and reads the logs of the local node's containers: a file for
// each run of a container, and one older part of it, with a time before each line. Start takes
// what the container writes, Read answers `kubectl logs`. The node decides which runs are kept.
package containerlog

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// maxLog is the size at which a log file is set aside; one old one is kept.
	maxLog = 16 << 20
	// maxLine is where a line is broken.
	maxLine = 16 << 10
	// followEvery is how often a followed log is looked at.
	followEvery = 100 * time.Millisecond
)

// File is the log of one run of a container, in the node's folder dir.
func File(dir string, pod *corev1.Pod, container string, attempt int32) string {
	return filepath.Join(Folder(dir, pod), fmt.Sprintf("%s_%d.log", container, attempt))
}

// Root has the logs of all pods, in the node's folder dir.
func Root(dir string) string { return filepath.Join(dir, "logs") }

// Folder has the logs of all runs of a pod's containers.
func Folder(dir string, pod *corev1.Pod) string {
	return filepath.Join(Root(dir), fmt.Sprintf("%s_%s_%s", pod.Namespace, pod.Name, pod.UID))
}

// Start returns the write end of a pipe whose lines go, with their time, to
// file. done is closed when every holder of the write end has closed it.
func Start(file string) (w *os.File, done <-chan struct{}, err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, nil, fmt.Errorf("make the log folder: %w", err)
	}
	out, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("make the log: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		out.Close()
		return nil, nil, fmt.Errorf("make a pipe: %w", err)
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		copyLines(file, out, r)
		r.Close()
	}()
	return w, finished, nil
}

// copyLines never stops reading before the end: a process must not block on its
// output because a disk is full.
func copyLines(file string, out *os.File, r io.Reader) {
	lines := bufio.NewReaderSize(r, maxLine)
	size := 0
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			stamped := append([]byte(time.Now().UTC().Format(time.RFC3339Nano)+" "), bytes.TrimSuffix(line, []byte("\n"))...)
			n, _ := out.Write(append(stamped, '\n'))
			size += n
		}
		if size > maxLog && os.Rename(file, file+".old") == nil {
			if next, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); err == nil {
				out.Close()
				out, size = next, 0
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			out.Close()
			return
		}
	}
}

// Options are those of `kubectl logs`; zero values mean no restriction.
type Options struct {
	// Tail is how many of the last lines are wanted, Limit how many bytes.
	Tail, Limit int
	// Timestamps asks for the time before each line, Follow for what is still to be written.
	Timestamps, Follow bool
	// Since leaves older lines out.
	Since time.Time
}

// Read returns a log's text. With Follow it goes on until ctx or running
// is done.
func Read(ctx context.Context, file string, o Options, running <-chan struct{}) (io.ReadCloser, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(copyOut(ctx, f, w, o, running)) }()
	return r, nil
}

// copyOut closes f.
func copyOut(ctx context.Context, f *os.File, w io.Writer, o Options, running <-chan struct{}) error {
	var next *os.File // the log that has taken f's place
	defer func() { closeAll(f, next) }()
	if o.Limit > 0 {
		w = &limitedWriter{w, o.Limit}
	}
	lines := bufio.NewReaderSize(f, 2*maxLine)
	var held []string // the last o.Tail lines, until the end is met once
	emit := func(line string) error { _, err := io.WriteString(w, line); return err }
	partial := ""
	for caughtUp, ended := false, false; ; {
		text, err := lines.ReadString('\n')
		partial += text
		if err == nil {
			line, ok := o.format(partial)
			partial = ""
			switch {
			case !ok:
			case o.Tail > 0 && !caughtUp:
				if held = append(held, line); len(held) > o.Tail {
					held = held[1:]
				}
			default:
				if err := emit(line); err != nil {
					return err
				}
			}
			continue
		}
		for _, line := range held {
			if err := emit(line); err != nil {
				return err
			}
		}
		held, caughtUp = nil, true
		if next != nil {
			closeAll(f)
			f, next, partial = next, nil, ""
			lines.Reset(f)
			continue
		}
		if !o.Follow {
			return nil
		}
		// The log may have been set aside since its end was met: its rest comes before the new one.
		if next = successor(f); next != nil {
			continue
		}
		if ended {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-running:
			ended = true // read what is left, once
		case <-time.After(followEvery):
		}
	}
}

// successor opens the log that is written now if it is another file than f; nil if it is f, or
// not there yet.
func successor(f *os.File) *os.File {
	next, err := os.Open(f.Name())
	if err != nil {
		return nil
	}
	was, err := f.Stat()
	is, nextErr := next.Stat()
	if err != nil || nextErr != nil || os.SameFile(was, is) {
		closeAll(next)
		return nil
	}
	return next
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		_ = f.Close() // nil is fine
	}
}

// format drops a line's time, or the line if it is too old.
func (o Options) format(line string) (string, bool) {
	stamp, text, ok := strings.Cut(line, " ")
	if !ok {
		return "", false
	}
	if !o.Since.IsZero() {
		if t, err := time.Parse(time.RFC3339Nano, stamp); err == nil && t.Before(o.Since) {
			return "", false
		}
	}
	if o.Timestamps {
		return line, true
	}
	return text, true
}

type limitedWriter struct {
	w    io.Writer
	left int
}

func (l *limitedWriter) Write(p []byte) (int, error) {
	if len(p) > l.left {
		p = p[:l.left]
	}
	n, err := l.w.Write(p)
	if l.left -= n; err == nil && l.left == 0 {
		err = io.EOF
	}
	return n, err
}
