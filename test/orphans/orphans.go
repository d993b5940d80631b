// Package orphans stops what a test process started if it ends without doing so
// itself: by a panic, by the timeout of go test, by SIGKILL. Programs that outlive a
// test keep its ports, its memory and its network namespaces until someone looks.
//
// A shell of its own session reads from a pipe whose other end this process alone
// holds. When the process ends, however it ends, the shell reads the end of the file
// and runs what it was given. It is called by test/stack and test/kubetest.
package orphans

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// Stop has the program run with these arguments, none of which has a newline, when
// this process has ended, unless forget was called before. Call forget once, after
// what it would have stopped has been stopped.
func Stop(program string, args ...string) (forget func(), err error) {
	// The command comes by the pipe: on the shell's own command line it would be taken
	// for what it is to stop by tests that look for processes left behind.
	shell := exec.Command("/bin/sh", "-c", `read -r command; read -r stopped || eval "exec $command"`)
	// A Ctrl-C goes to all processes of a terminal's group, and this one has work to
	// do after it.
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := shell.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("watching over what the test starts: %w", err)
	}
	if err := shell.Start(); err != nil {
		return nil, fmt.Errorf("watching over what the test starts: %w", err)
	}
	forget = func() {
		_, _ = pipe.Write([]byte("stopped\n"))
		_ = pipe.Close()
		_ = shell.Wait()
	}
	if _, err := pipe.Write([]byte(quoted(program, args) + "\n")); err != nil {
		forget()
		return nil, fmt.Errorf("watching over what the test starts: %w", err)
	}
	return forget, nil
}

// quoted is a command as a shell reads it.
func quoted(program string, args []string) string {
	words := append([]string{program}, args...)
	for i, word := range words {
		words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return strings.Join(words, " ")
}
