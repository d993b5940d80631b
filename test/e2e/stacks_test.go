package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/stack"
)

// turn is held by the tests that keep both processors busy for long. They run
// beside tests that wait, and not beside one another.
var turn sync.Mutex

// takeTurn waits for the turn and keeps it until the test ends. Call it after
// t.Parallel.
func takeTurn(t *testing.T) {
	t.Helper()
	turn.Lock()
	t.Cleanup(turn.Unlock)
}

// stacks are the state folders of the stacks that tests have started besides the
// shared one, as realPath gives them.
var stacks struct {
	sync.Mutex
	states []string
}

// stateOf finds the state folder in the command line of a stack's process.
var stateOf = regexp.MustCompile(` --state[ =](/\S+)`)

// othersThan returns what names each stack but the one in this state folder, whether
// these tests started it or another process of this machine: its folder, and its mark.
func othersThan(t *testing.T, state string) (names []string) {
	t.Helper()
	state = realPath(t, state)
	stacks.Lock()
	others := append([]string{realPath(t, shared.State)}, stacks.states...)
	stacks.Unlock()
	for _, p := range processes(t) {
		if found := stateOf.FindStringSubmatch(p); found != nil {
			if dir, err := filepath.EvalSymlinks(found[1]); err == nil {
				others = append(others, dir)
			}
		}
	}
	for _, other := range others {
		if other != state {
			names = append(names, other, markOf(other))
		}
	}
	return names
}

// markOf is what is in the names of all links and cgroups of a stack: 8 hex digits of
// a hash of its state folder.
func markOf(state string) string {
	sum := sha256.Sum256([]byte(state))
	return hex.EncodeToString(sum[:4])
}

func realPath(t *testing.T, dir string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// start starts a stack of the test's own.
func start(t *testing.T, state string) *stack.Stack {
	t.Helper()
	return startWith(t, state, "--pool-size", "2", "--isolation", "full")
}

// startWith is start with these arguments, of which "--isolation full" is one.
func startWith(t *testing.T, state string, args ...string) *stack.Stack {
	t.Helper()
	mark := markOf(realPath(t, state))
	stacks.Lock()
	stacks.states = append(stacks.states, realPath(t, state))
	stacks.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	s, err := stack.Start(ctx, state, args...)
	t.Cleanup(func() { _ = s.Stop() })
	if err != nil {
		t.Fatalf("%v\n%s", err, s.Logs(20))
	}
	if bridge := "link sl" + mark + "br"; !machine(t)[bridge] {
		t.Fatalf("the stack in %s has no %s: its mark is made in another way than leftovers takes for granted", state, bridge)
	}
	return s
}
