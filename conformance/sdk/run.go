package sdk

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Result is what a program printed of a case.
type Result struct {
	Name  string  `json:"name"`
	OK    bool    `json:"ok"`
	Error string  `json:"error"`
	MS    float64 `json:"ms"`
}

// Options say how a program is run.
type Options struct {
	// Env is what the program gets beside this process's variables: those of the SDK, and
	// those that suite.py and suite.mjs read.
	Env []string
	// Only are the names of the cases to run; all if empty.
	Only []string
	// Tell is called with each result as soon as it is printed.
	Tell func(Result)
}

// Run installs the SDK, if it is not in the user's cache, and runs its cases. It returns what
// the program printed besides, and an error if the SDK could not be installed or the program
// failed. If ctx ends, the program is killed with all that it has started.
func (s SDK) Run(ctx context.Context, o Options) (said string, err error) {
	args, err := s.install(ctx)
	if err != nil {
		return "", fmt.Errorf("install %s: %w", s, err)
	}
	dir, err := os.MkdirTemp("", "sandlane-sdk-")
	if err != nil {
		return "", fmt.Errorf("the programs of SDKs: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.CopyFS(dir, s.files()); err != nil {
		return "", fmt.Errorf("the programs of SDKs: %w", err)
	}
	args = append(args, o.Only...)
	args[1] = filepath.Join(dir, args[1])
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), o.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", fmt.Errorf("run %s: %w", s, err)
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("run %s: %w", s, err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	var other bytes.Buffer
	for lines.Scan() {
		var r Result
		if json.Unmarshal(lines.Bytes(), &r) != nil || r.Name == "" {
			_, _ = other.Write(append(lines.Bytes(), '\n'))
			continue
		}
		o.Tell(r)
	}
	// After a line that is too long the rest is read all the same: the program would wait.
	_, _ = io.Copy(io.Discard, out)
	err = errors.Join(lines.Err(), cmd.Wait())
	if err != nil {
		err = fmt.Errorf("run %s: %w", s, err)
	}
	return other.String() + errs.String(), err
}

// files are the program and its modules.
func (s SDK) files() fs.FS {
	sub, err := fs.Sub(programs, s.Language)
	if err != nil {
		panic(err) // a slip in this package: the folder's name is no path
	}
	return sub
}

// install returns the command line, whose second word is the program's name.
func (s SDK) install(ctx context.Context) ([]string, error) {
	locks := s.locks()
	if s.Language == "js" {
		what := []string{"ci"}
		if locks == nil {
			locks, what = map[string][]byte{"package.json": []byte(`{"dependencies":{"e2b":"` + s.Version + `"}}`)}, []string{"install"}
		}
		dir, err := node(ctx, locks, what...)
		return []string{"node", "cases.mjs", dir}, err
	}
	what := []string{"--require-hashes", "-r", "e2b-" + s.Version + ".lock"}
	if locks == nil {
		locks, what = map[string][]byte{"requirements.txt": []byte("e2b==" + s.Version + "\n")}, []string{"-r", "requirements.txt"}
	}
	bin, err := python(ctx, locks, what...)
	use := "sync"
	if s.Async {
		use = "async"
	}
	return []string{filepath.Join(bin, "python"), "cases.py", use}, err
}
