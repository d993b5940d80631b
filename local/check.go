package local

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/local/node"
)

// isolation decides how pods are kept apart on this machine.
func isolation(wish string, can func() error, progress func(string)) (node.Isolation, error) {
	if wish == IsolationNone {
		progress("WARNING: --isolation none: sandboxes are plain processes of this machine. They see its files and each other, and a server that listens on all addresses can answer for another sandbox.")
		return node.IsolationNone, nil
	}
	err := can()
	switch {
	case err == nil:
		progress("sandboxes are kept apart by namespaces: made for development, no boundary against hostile code")
		return node.IsolationFull, nil
	case wish == IsolationFull:
		return "", fmt.Errorf("--isolation full: %w", err)
	}
	progress(fmt.Sprintf("WARNING: sandboxes are NOT isolated (%v). They are plain processes that see this machine's files and each other, and a server that listens on all addresses can answer for another sandbox.", err))
	return node.IsolationNone, nil
}

// minStreams is how many an Envoy must be able to serve to be worth starting.
const minStreams = 100

// raiseFiles raises this process's limit of open files, which its children
// inherit, as far as it may be, and returns how many streams Envoy can serve.
func raiseFiles(progress func(string)) (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	limit.Cur = limit.Max
	// Said by Setrlimit itself so that children get it: Go otherwise gives them
	// the limit this process was started with.
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("raise the limit of open files: %w", err)
	}
	streams := envoy.StreamsFor(limit.Cur)
	if streams < minStreams {
		return 0, errors.New("at least " + fmt.Sprint(envoy.Files(minStreams)) + " open files are needed, and this machine allows " + fmt.Sprint(limit.Cur) + ": raise the hard limit (ulimit -Hn)")
	}
	if streams < envoy.DefaultMaxStreams {
		progress(fmt.Sprintf("note: the limit of %d open files allows %d streams at once (10,000 need %d)", limit.Cur, streams, envoy.Files(envoy.DefaultMaxStreams)))
	}
	return streams, nil
}
