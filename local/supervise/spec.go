package supervise

import (
	"context"
	"time"
)

// Spec describes a process.
type Spec struct {
	// Name is unique in a group.
	Name string
	// Path and Args are the command line, without the program's name in Args.
	Path string
	Args []string
	// Env is added to this process's environment.
	Env []string
	// LogFile gets what the process prints; it is moved to LogFile.1 whenever it is larger than
	// 10 MB.
	LogFile string
	// Ready returns nil once the process serves; it is asked again and again.
	// Nil means that a started process is a ready one.
	Ready func(ctx context.Context) error
	// After returns nil once the process may be started, again as at first: what
	// it needs serves. Nil means at once.
	After func(ctx context.Context) error
	// ReadyTimeout bounds After and Ready, each, at the first start; default one
	// minute.
	ReadyTimeout time.Duration
	// StopTimeout is how long the process may take to end after SIGTERM before
	// it is killed with its group; default 10 s.
	StopTimeout time.Duration
}

func (s *Spec) complete() {
	if s.Ready == nil {
		s.Ready = func(context.Context) error { return nil }
	}
	if s.After == nil {
		s.After = func(context.Context) error { return nil }
	}
	if s.ReadyTimeout == 0 {
		s.ReadyTimeout = time.Minute
	}
	if s.StopTimeout == 0 {
		s.StopTimeout = 10 * time.Second
	}
}

// State is where a process is in its life.
type State string

// The states of a process.
const (
	Starting State = "starting"
	Running  State = "running"
	Waiting  State = "waiting"
	Stopping State = "stopping"
	Stopped  State = "stopped"
)

// Status is a look at a process.
type Status struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// PID is 0 while no process runs.
	PID int `json:"pid"`
	// StartedAt is when the present process, or the last one, was started.
	StartedAt time.Time `json:"startedAt"`
	// Restarts counts the starts after the first.
	Restarts int `json:"restarts"`
	// LastExit says how the last process ended; empty if none has.
	LastExit string `json:"lastExit,omitempty"`
	// Problem says why the process does not serve; empty if it does. Set by
	// Group.Check alone.
	Problem string `json:"problem,omitempty"`
}
