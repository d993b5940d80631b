package stack

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/sandlane/sandlane/test/orphans"
)

// running are the stacks of this process. A person's Ctrl-C, or a SIGTERM, stops
// them before it ends the tests: their processes have groups of their own.
var running struct {
	mu     sync.Mutex // guards the rest; not given back once the stacks are being stopped
	stacks map[*Stack]bool
	forget func() // no longer waits for an interruption; set while there are stacks
}

// attend has s stopped when the tests are interrupted, and when their process ends
// without stopping it, until leave.
func attend(s *Stack) error {
	running.mu.Lock()
	defer running.mu.Unlock()
	if len(running.stacks) == 0 {
		running.stacks = map[*Stack]bool{}
		interrupted, ignore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		cancel := context.AfterFunc(interrupted, stopAll)
		running.forget = func() { cancel(); ignore() }
	}
	running.stacks[s] = true
	var err error
	s.forget, err = orphans.Stop(s.Bin, "down", "--state", s.State)
	return err
}

func leave(s *Stack) {
	running.mu.Lock()
	defer running.mu.Unlock()
	if running.stacks[s] && len(running.stacks) == 1 {
		running.forget()
	}
	delete(running.stacks, s)
	if s.forget != nil {
		s.forget()
		s.forget = nil
	}
}

func stopAll() {
	running.mu.Lock()
	fmt.Fprintf(os.Stderr, "interrupted: stopping %d stacks\n", len(running.stacks))
	var stopping sync.WaitGroup
	for s := range running.stacks {
		stopping.Go(func() {
			if err := s.down(); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		})
	}
	stopping.Wait()
	os.Exit(1)
}
