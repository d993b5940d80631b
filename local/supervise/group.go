package supervise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Options of a Group. The zero value works.
type Options struct {
	// Log gets a line whenever a process dies or starts again; default
	// slog.Default().
	Log *slog.Logger
	// OnChange is called after a process started again or ended, from that
	// process's goroutine: it must not call Start or Stop.
	OnChange func()
	// MinPause and MaxPause bound the pause before a restart; defaults 200 ms
	// and 30 s.
	MinPause, MaxPause time.Duration
}

// Group is the processes of one `up`. Safe for concurrent use.
type Group struct {
	o       Options
	spawner *spawner

	mu        sync.Mutex
	processes []*process // in order of their start
}

// NewGroup returns an empty group. Close it.
func NewGroup(o Options) *Group {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.OnChange == nil {
		o.OnChange = func() {}
	}
	if o.MinPause == 0 {
		o.MinPause = 200 * time.Millisecond
	}
	if o.MaxPause == 0 {
		o.MaxPause = 30 * time.Second
	}
	return &Group{o: o, spawner: newSpawner()}
}

// StartError says that a process did not come up.
type StartError struct {
	Name string
	// Err is what went wrong.
	Err error
	// Tail is the end of what the process printed; it may be empty.
	Tail string
	// LogFile has the rest.
	LogFile string
}

// Error is several lines long: the reason, the end of the log, where the rest is.
func (e *StartError) Error() string {
	if e.Tail == "" {
		return fmt.Sprintf("%s did not start: %v (it printed nothing; its log is %s)", e.Name, e.Err, e.LogFile)
	}
	return fmt.Sprintf("%s did not start: %v\nthe end of its log (all of it: %s):\n%s", e.Name, e.Err, e.LogFile, e.Tail)
}

func (e *StartError) Unwrap() error { return e.Err }

// Start starts a process and returns when it is ready. If it dies before, or
// is not ready in time, the error is a *StartError and the process is gone.
func (g *Group) Start(ctx context.Context, spec Spec) error {
	spec.complete()
	p := newProcess(g, spec)
	g.mu.Lock()
	for _, other := range g.processes {
		if other.spec.Name == spec.Name {
			g.mu.Unlock()
			return fmt.Errorf("a process called %s is there already", spec.Name)
		}
	}
	g.processes = append(g.processes, p)
	g.mu.Unlock()
	go p.run()
	select {
	case err := <-p.first:
		return err
	case <-ctx.Done():
		p.stop()
		return fmt.Errorf("start %s: %w", spec.Name, context.Cause(ctx))
	}
}

// Stop stops a process and returns when it is gone. A name that is not in the
// group, or one that has stopped, is no error.
func (g *Group) Stop(name string) {
	if p := g.process(name); p != nil {
		p.stop()
	}
}

// StopAll stops every process, the last started first, each after the one
// before it is gone. When ctx ends it kills what is left.
func (g *Group) StopAll(ctx context.Context) {
	kill := context.AfterFunc(ctx, func() {
		for _, p := range g.all() {
			p.kill()
		}
	})
	defer kill()
	all := g.all()
	for i := len(all) - 1; i >= 0; i-- {
		all[i].stop()
	}
}

// Close stops and releases everything. The group cannot be used afterwards.
func (g *Group) Close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	g.StopAll(ctx)
	g.spawner.close()
}

// Status looks at every process, in order of their start.
func (g *Group) Status() []Status {
	var out []Status
	for _, p := range g.all() {
		out = append(out, p.status())
	}
	return out
}

// Check is Status with Problem filled in, by asking each process once.
func (g *Group) Check(ctx context.Context) []Status {
	all := g.all()
	out := make([]Status, len(all))
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() {
			out[i] = p.status()
			switch {
			case out[i].LastExit != "" && (out[i].State == Waiting || out[i].State == Starting):
				out[i].Problem = fmt.Sprintf("has ended (%s) and is started again; its log is %s", out[i].LastExit, p.spec.LogFile)
			case out[i].State != Running:
				out[i].Problem = "is " + string(out[i].State)
			default:
				if err := ask(ctx, p.spec.Ready); err != nil {
					out[i].Problem = err.Error()
				}
			}
		})
	}
	wg.Wait()
	return out
}

func (g *Group) all() []*process {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]*process(nil), g.processes...)
}

func (g *Group) process(name string) *process {
	for _, p := range g.all() {
		if p.spec.Name == name {
			return p
		}
	}
	return nil
}

var (
	errNotReady = errors.New("it was not ready in time")
	// errEnded is the end, with success, of a process that was ready.
	errEnded   = errors.New("it ended by itself")
	errStopped = errors.New("it is to stop")
)
