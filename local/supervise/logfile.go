package supervise

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const (
	maxLog = 10 << 20
	// tailLines is how much of its log a process shows that does not start.
	tailLines = 20
	tailBytes = 16 << 10
)

// openLog opens a log for appending and returns its length, where the next
// process begins.
func openLog(path string) (*os.File, int64, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, 0, fmt.Errorf("make the folder of logs: %w", err)
	}
	if st, err := os.Stat(path); err == nil && st.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, 0, fmt.Errorf("rotate a log: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("open a log: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, fmt.Errorf("open a log: %w", err)
	}
	return f, st.Size(), nil
}

// tail returns the last lines of a log, none of before offset from.
func tail(path string, from int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size()-from > tailBytes {
		from = st.Size() - tailBytes
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
