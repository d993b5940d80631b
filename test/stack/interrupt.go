package stack

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// running are the stacks of this process. A person's Ctrl-C, or a SIGTERM, stops
// them before it ends the tests: their processes have groups of their own.
var running struct {
	once   sync.Once
	mu     sync.Mutex // guards stacks; not given back once they are being stopped
	stacks map[*Stack]bool
}

// attend has s stopped when the tests are interrupted, until leave.
func attend(s *Stack) {
	running.once.Do(func() {
		running.stacks = map[*Stack]bool{}
		interrupted, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		context.AfterFunc(interrupted, stopAll)
	})
	running.mu.Lock()
	defer running.mu.Unlock()
	running.stacks[s] = true
}

func leave(s *Stack) {
	running.mu.Lock()
	defer running.mu.Unlock()
	delete(running.stacks, s)
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
