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
	once   sync.Once
	mu     sync.Mutex // guards stacks; not given back once they are being stopped
	stacks map[*Stack]bool
}

// attend has s stopped when the tests are interrupted, and when their process ends
// without stopping it, until leave.
func attend(s *Stack) error {
	running.once.Do(func() {
		running.stacks = map[*Stack]bool{}
		interrupted, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		context.AfterFunc(interrupted, stopAll)
	})
	running.mu.Lock()
	defer running.mu.Unlock()
	running.stacks[s] = true
	var err error
	s.forget, err = orphans.Stop(s.Bin, "down", "--state", s.State)
	return err
}

func leave(s *Stack) {
	running.mu.Lock()
	defer running.mu.Unlock()
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
