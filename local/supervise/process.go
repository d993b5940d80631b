package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sandlane/sandlane/failpoint"
	"github.com/sandlane/sandlane/kubeclient/backoff"
)

const (
	// askEvery is the pause between two looks at whether a process is ready.
	askEvery   = 50 * time.Millisecond
	askTimeout = 5 * time.Second
	// calmAfter is how long a process must have run for its next restart to be
	// immediate again.
	calmAfter = 30 * time.Second
)

// process is one name of a group. run owns it; others only close quit or kill.
type process struct {
	group *Group
	spec  Spec

	first chan error // outcome of the first start, sent once
	quit  chan struct{}
	once  sync.Once
	done  chan struct{} // closed when run has returned

	mu  sync.Mutex // guards now; only run writes it
	now Status
}

func newProcess(g *Group, spec Spec) *process {
	return &process{
		group: g, spec: spec,
		first: make(chan error, 1), quit: make(chan struct{}), done: make(chan struct{}),
		now: Status{Name: spec.Name, State: Starting},
	}
}

func (p *process) status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

func (p *process) set(change func(*Status)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.now)
}

// stop asks run to end and waits for it.
func (p *process) stop() {
	p.once.Do(func() { close(p.quit) })
	<-p.done
}

// kill ends the process with everything in its group. run notices.
func (p *process) kill() {
	p.mu.Lock() // wait takes the lock too, so that the PID is not reaped and used again meanwhile
	defer p.mu.Unlock()
	if p.now.PID != 0 {
		_ = syscall.Kill(-p.now.PID, syscall.SIGKILL)
	}
}

// run starts the process over and over until it is told to stop.
func (p *process) run() {
	defer close(p.done)
	defer p.set(func(s *Status) { s.State = Stopped })
	pauses := p.pauses()
	for attempt := 0; ; attempt++ {
		began := time.Now()
		again, err := p.cycle(attempt)
		if !again {
			return
		}
		if time.Since(began) > calmAfter || errors.Is(err, errEnded) {
			pauses = p.pauses()
		}
		pause := pauses.Step()
		p.group.o.Log.Warn("process ended, starting it again", "process", p.spec.Name, "exit", err, "pause", pause, "log", p.spec.LogFile)
		p.set(func(s *Status) { s.State = Waiting; s.Restarts++ })
		p.group.o.OnChange()
		select {
		case <-p.quit:
			return
		case <-time.After(pause):
		}
	}
}

// pauses are those before further starts of a process that keeps ending.
func (p *process) pauses() *wait.Backoff {
	return backoff.Doubling(p.group.o.MinPause, p.group.o.MaxPause)
}

// cycle runs the process once. It returns how it ended, and whether it is to
// be started again.
func (p *process) cycle(attempt int) (again bool, err error) {
	fail := func(err error, from int64) (bool, error) {
		if attempt == 0 {
			p.set(func(s *Status) { s.State = Stopped }) // before Start returns: no OnChange follows
			p.first <- &StartError{Name: p.spec.Name, Err: err, Tail: tail(p.spec.LogFile, from), LogFile: p.spec.LogFile}
			return false, err
		}
		return true, err
	}
	if err := p.waitAfter(attempt == 0); err != nil {
		if errors.Is(err, errStopped) {
			return false, err
		}
		return fail(err, 0)
	}
	log, err := openLog(p.spec.LogFile)
	if err != nil {
		return fail(err, 0)
	}
	from := log.size
	cmd, err := p.spawn(log)
	if err != nil {
		log.Close()
		return fail(err, from)
	}
	exited := make(chan error, 1)
	go func() { exited <- p.wait(cmd, log) }()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ready := make(chan error, 1)
	go func() { ready <- p.until(ctx, p.spec.Ready, attempt == 0) }()
	for {
		select {
		case err := <-exited:
			cancel()
			if ready != nil {
				<-ready
				return fail(fmt.Errorf("before it was ready: %s", err.Error()), from) // thus never errEnded
			}
			return true, err
		case err := <-ready:
			ready = nil
			if err != nil {
				p.kill()
				<-exited
				return fail(err, from)
			}
			p.set(func(s *Status) { s.State = Running })
			if attempt == 0 {
				p.first <- nil
			} else {
				p.group.o.Log.Info("process runs again", "process", p.spec.Name, "pid", cmd.Process.Pid)
				p.group.o.OnChange()
			}
		case <-p.quit:
			cancel()
			if ready != nil {
				<-ready
			}
			p.end(cmd, exited)
			return false, nil
		}
	}
}

// spawn starts the process, whose output goes by a pipe to the log.
func (p *process) spawn(log *logFile) (*exec.Cmd, error) {
	failpoint.Hit("supervise/" + p.spec.Name)
	cmd := exec.Command(p.spec.Path, p.spec.Args...)
	cmd.Env = append(append(os.Environ(), failpoint.Env(p.spec.Name)...), p.spec.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.WaitDelay = logLinger
	if err := p.group.spawner.start(cmd); err != nil {
		return nil, err
	}
	p.set(func(s *Status) { s.State, s.PID, s.StartedAt = Starting, cmd.Process.Pid, time.Now() })
	return cmd, nil
}

// wait reaps the process, and closes its log. The PID is cleared before the kernel may give it
// to another process: kill must not hit that one.
func (p *process) wait(cmd *exec.Cmd, log *logFile) error {
	waitExited(cmd.Process.Pid)
	var err error
	p.set(func(s *Status) {
		err = cmd.Wait()
		s.PID = 0
		s.LastExit = cmd.ProcessState.String()
	})
	log.Close()
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		err = errEnded
	}
	return err
}

// waitAfter returns nil when the process may be started.
func (p *process) waitAfter(bounded bool) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	asked := make(chan error, 1)
	go func() { asked <- p.until(ctx, p.spec.After, bounded) }()
	select {
	case err := <-asked:
		return err
	case <-p.quit:
		cancel(errStopped)
		<-asked
		return errStopped
	}
}

// until asks until the answer is nil; the first time not for ever.
func (p *process) until(ctx context.Context, question func(context.Context) error, bounded bool) error {
	if bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, p.spec.ReadyTimeout, errNotReady)
		defer cancel()
	}
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		err := ask(ctx, question)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w after %s: %w", context.Cause(ctx), p.spec.ReadyTimeout, err)
		case <-tick.C:
		}
	}
}

// ask asks once, for a few seconds at most.
func ask(ctx context.Context, question func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return question(ctx)
}

// end tells the process to stop, and kills it if it does not.
func (p *process) end(cmd *exec.Cmd, exited <-chan error) {
	p.set(func(s *Status) { s.State = Stopping })
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-exited: //nolint:errcheck // it was told to end: how it did does not matter
	case <-time.After(p.spec.StopTimeout):
		p.group.o.Log.Warn("process did not stop in time and is killed", "process", p.spec.Name, "after", p.spec.StopTimeout)
		p.kill()
		<-exited
	}
}
