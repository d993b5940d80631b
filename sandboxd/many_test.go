package sandboxd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/processpb"
)

const (
	manyCommands = 500 // every fifth on a terminal
	maxThreads   = 60  // of sandboxd and, here, of its clients too; a thread each would be 500
	// startsAtOnce bounds those that start at once: while the machine is busy, each of them may
	// hold a thread in a system call, and the runtime keeps its threads.
	startsAtOnce = 16
	// manyEnv has the test run in a process of its own, whose threads are counted.
	manyEnv = "SANDBOXD_TEST_MANY"
)

// Commands that run cost no thread each, with pipes or a terminal: the runtime ends a
// process of 10,000.
func TestManyCommandsFewThreads(t *testing.T) {
	if os.Getenv(manyEnv) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestManyCommandsFewThreads$")
		cmd.Env = append(os.Environ(), manyEnv+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	a := newAgent(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var streams, started sync.WaitGroup
	starting := make(chan struct{}, startsAtOnce)
	for i := range manyCommands {
		req := &processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: "sleep", Args: []string{"1000"}}, Stdin: new(false)}
		if i%5 == 0 {
			req.Pty = &processpb.PTY{Size: &processpb.PTY_Size{Cols: 80, Rows: 24}}
		}
		started.Add(1)
		starting <- struct{}{}
		streams.Go(func() {
			err := a.run(ctx, req, func() { <-starting; started.Done() })
			if err != nil && ctx.Err() == nil {
				t.Errorf("a command: %v", err)
			}
		})
	}
	started.Wait()
	list, err := a.processes.List(t.Context(), connect.NewRequest(&processpb.ListRequest{}))
	if err != nil || len(list.Msg.GetProcesses()) != manyCommands {
		t.Errorf("%d commands run, %v", len(list.Msg.GetProcesses()), err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\nThreads:")
	threads := 0
	if _, err := fmt.Sscan(rest, &threads); err != nil || threads > maxThreads {
		t.Errorf("%d threads, %v, want %d at most", threads, err, maxThreads)
	}
	cancel()
	streams.Wait()
	a.stop()
}

// run runs a command and calls started when it was started, or could not be.
func (a *agent) run(ctx context.Context, req *processpb.StartRequest, started func()) error {
	once := sync.OnceFunc(started)
	defer once()
	stream, err := a.processes.Start(ctx, connect.NewRequest(req))
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	for stream.Receive() {
		once()
	}
	return stream.Err()
}
