package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// logTail is how much of each log is shown when no process is named.
const logTail = 20

// Logs writes the log of a process to out, or, without a name, the end of
// every log with its name before each line. With follow it goes on until ctx
// ends. Logs of an `up` that has ended are there too.
func Logs(ctx context.Context, stateDir, name string, follow bool, out io.Writer) error {
	s := newState(stateDir)
	files, err := filepath.Glob(s.path("logs", "*.log"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("there are no logs in %s: nothing was started with this state folder", s.path("logs"))
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".log"))
	}
	if name != "" {
		if !slices.Contains(names, name) {
			return fmt.Errorf("there is no log called %q; there are %s", name, strings.Join(names, ", "))
		}
		names = []string{name}
	}
	var readers []*logReader
	for _, n := range names {
		r := &logReader{path: s.log(n)}
		if name == "" {
			r.prefix = fmt.Sprintf("%-*s | ", longest(names), n)
		}
		readers = append(readers, r)
		if err := r.begin(out); err != nil {
			return err
		}
	}
	if !follow {
		return nil
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, r := range readers {
			if err := r.more(out); err != nil {
				return err
			}
		}
	}
}

func longest(names []string) int {
	n := 0
	for _, name := range names {
		n = max(n, len(name))
	}
	return n
}

// logReader follows one log. offset is behind the last whole line shown, of the file that was
// read last.
type logReader struct {
	path, prefix string
	file         os.FileInfo // nil before the first read
	offset       int64
}

// begin shows all of the log, or its end if it is one of several.
func (r *logReader) begin(out io.Writer) error {
	lines, err := r.read(r.path)
	if err != nil {
		return err
	}
	if r.prefix != "" && len(lines) > logTail {
		lines = lines[len(lines)-logTail:]
	}
	return r.show(out, lines)
}

// more shows what came since, also after the log was moved away.
func (r *logReader) more(out io.Writer) error {
	if st, err := os.Stat(r.path); err == nil && r.file != nil && (!os.SameFile(st, r.file) || st.Size() < r.offset) {
		moved := r.path + ".1"
		if st, err := os.Stat(moved); err == nil && os.SameFile(st, r.file) {
			last, err := r.read(moved) // what came before it was moved
			if err != nil {
				return err
			}
			if err := r.show(out, last); err != nil {
				return err
			}
		}
		r.offset = 0
	}
	lines, err := r.read(r.path)
	if err != nil {
		return err
	}
	return r.show(out, lines)
}

func (r *logReader) show(out io.Writer, lines []string) error {
	for _, line := range lines {
		if _, err := fmt.Fprint(out, r.prefix, line); err != nil {
			return fmt.Errorf("show %s: %w", r.path, err)
		}
	}
	return nil
}

// read returns the whole lines of a file from offset on.
func (r *logReader) read(path string) ([]string, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // moved away just now
	}
	if err != nil {
		return nil, fmt.Errorf("read a log: %w", err)
	}
	defer f.Close()
	if r.file, err = f.Stat(); err != nil {
		return nil, fmt.Errorf("read a log: %w", err)
	}
	if _, err := f.Seek(r.offset, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read a log: %w", err)
	}
	var lines []string
	in := bufio.NewReader(f)
	for {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return lines, nil // a part of a line is read again when it is whole
		}
		if err != nil {
			return nil, fmt.Errorf("read a log: %w", err)
		}
		r.offset += int64(len(line))
		lines = append(lines, line)
	}
}
