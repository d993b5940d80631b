package sandboxd

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/sandlane/sandlane/sandboxd/process"
)

// The start command is the server that an image exists for, such as a code interpreter.
// sandboxd is the first process of the container, and starts it beside itself:
//
//	started --ends with 0--> done
//	started --fails, cannot start--> waiting for restartPause --> started
//	any --Serve ends--> terminated; killed when the grace is over
//
// It runs as the default user, from before the sandbox has an identity: it does not get the
// variables that /init sets.

// restartPause is the time between an end of a start command that failed and its next start.
const restartPause = time.Second

// runStartCommand keeps the start command running until the returned function is called,
// which ends it and returns when it has ended.
func (s *Server) runStartCommand() (stop func(context.Context)) {
	if len(s.options.Command) == 0 {
		return func(context.Context) {}
	}
	running, cancel := context.WithCancel(context.Background())
	grace := make(chan context.Context, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for running.Err() == nil {
			launched, err := s.launchStartCommand()
			if err == nil {
				if err = s.awaitStartCommand(running, launched, grace); err == nil {
					return
				}
			}
			_, _ = fmt.Fprintf(s.options.Log, "sandboxd: the start command %s: %v\n", s.options.Command[0], err)
			pause := time.NewTimer(restartPause)
			select {
			case <-running.Done():
			case <-pause.C:
			}
			pause.Stop()
		}
	}()
	return func(ctx context.Context) {
		grace <- ctx
		cancel()
		<-ended
	}
}

func (s *Server) launchStartCommand() (*process.Launched, error) {
	user, err := s.caller.Named("")
	if err != nil {
		return nil, err
	}
	return s.processes.LaunchAs(user, s.options.Command, os.Stderr)
}

// awaitStartCommand returns nil if the start command exited with 0 or was told to end.
func (s *Server) awaitStartCommand(running context.Context, launched *process.Launched, grace <-chan context.Context) error {
	exited := make(chan *os.ProcessState, 1)
	go func() { exited <- launched.Wait() }()
	select {
	case state := <-exited:
		if state.Success() {
			return nil
		}
		return fmt.Errorf("it ended (%s) and is started again", state)
	case <-running.Done():
	}
	launched.Signal(syscall.SIGTERM)
	select {
	case <-exited:
	case <-(<-grace).Done():
		launched.Signal(syscall.SIGKILL)
		<-exited
	}
	return nil
}
