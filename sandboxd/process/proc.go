package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/processpb"
)

const (
	// chunk is how many bytes one data event carries at most.
	chunk = 32 << 10
	// abandonAfter is how long the output of a killed process, or of a terminal whose process
	// has exited, is still published when another process, such as a daemon, has it open.
	abandonAfter = time.Second
	// kernelKeeps is what a pipe or a terminal holds at most, if nothing has changed that.
	kernelKeeps = 64 << 10
)

// proc is one process that Start made.
type proc struct {
	config   *processpb.ProcessConfig
	tag      *string
	pid      uint32
	cmd      *exec.Cmd
	hub      hub
	input    input
	terminal *os.File // the master side; nil without a terminal
	outputs  []output
	starved  func(*os.ProcessState) bool // whether the kernel ended it for lack of memory
	exited   chan struct{}               // closed when the leader has exited, before it is reaped
	done     chan struct{}               // closed after the end event

	// mu guards reaped and killed. Signals are sent under it and only before
	// the leader is reaped: until then the kernel gives its pid to no other process.
	mu     sync.Mutex
	reaped bool
	killed bool

	abandon sync.Once
}

// output is one stream of a process, and the event that carries a piece of it.
type output struct {
	file  *os.File
	event func([]byte) *processpb.ProcessEvent
}

// run publishes the output until the process has ended, and then its end event, and leaves
// what others may still write to left. It reports whether the kernel ended the process for
// lack of memory.
func (p *proc) run(left *left) (starved bool) {
	defer close(p.done)
	var reading sync.WaitGroup
	for _, o := range p.outputs {
		reading.Go(func() { p.pump(o) })
	}
	go p.awaitExit()
	reading.Wait()
	<-p.exited
	p.mu.Lock()
	err := p.cmd.Wait()
	p.reaped = true
	starved = !p.killed && p.starved(p.cmd.ProcessState)
	p.mu.Unlock()
	if starved {
		err = fmt.Errorf("%w: out of memory: the sandbox had used all of its memory, and the kernel ended this command for it", err)
	}
	p.input.close()
	for _, o := range p.outputs {
		left.take(o.file)
	}
	p.hub.end(endEvent(p.cmd.ProcessState, err))
	return starved
}

// awaitExit waits for the leader without reaping it.
func (p *proc) awaitExit() {
	awaitExit(int(p.pid))
	close(p.exited)
	p.mu.Lock()
	abandoned := p.killed || p.terminal != nil
	p.mu.Unlock()
	if abandoned {
		p.abandonOutput()
	}
}

// pump reads one output to its end, or until it is abandoned, and publishes what it read.
func (p *proc) pump(o output) {
	buf := make([]byte, chunk)
	publish := func(n int) {
		if n > 0 {
			p.hub.publish(o.event(append([]byte(nil), buf[:n]...)))
		}
	}
	for {
		n, err := o.file.Read(buf)
		publish(n)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return // EOF, or EIO from a terminal that is not open
		}
	}
	// Abandoned: what the process wrote before its end is in the kernel.
	for rest := kernelKeeps; rest > 0; {
		n := 0
		_ = control(o.file, func(fd int) (err error) {
			n, err = unix.Read(fd, buf[:min(rest, chunk)]) // does not wait
			return err
		})
		if n <= 0 {
			return
		}
		publish(n)
		rest -= n
	}
}

// signal signals the whole group of the process. It reports false if the process has ended.
func (p *proc) signal(sig syscall.Signal) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return false, nil
	}
	return true, p.signalGroup(sig)
}

// timeOut kills the group, for example at the deadline of the request that started it,
// unless the leader has exited: the deadline is not meant for processes that the leader left
// in the background, such as a server.
func (p *proc) timeOut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped || hasExited(int(p.pid)) {
		return
	}
	_ = p.signalGroup(syscall.SIGKILL) // nothing else can be done if it fails
}

// signalGroup signals the group. Call it with mu held and before the reaping.
func (p *proc) signalGroup(sig syscall.Signal) error {
	if sig == syscall.SIGKILL {
		p.killed = true
		select {
		case <-p.exited:
			p.abandonOutput()
		default:
		}
	}
	if err := syscall.Kill(-int(p.pid), sig); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("signalling process %d: %w", p.pid, err)
	}
	return nil
}

// abandonOutput stops publishing the output after abandonAfter. It is for a process that has
// exited, whose output another process has open.
func (p *proc) abandonOutput() {
	p.abandon.Do(func() {
		go func() {
			timer := time.NewTimer(abandonAfter)
			defer timer.Stop()
			select {
			case <-p.done:
			case <-timer.C:
				for _, o := range p.outputs {
					_ = o.file.SetReadDeadline(time.Unix(1, 0))
				}
			}
		}()
	})
}

func endEvent(state *os.ProcessState, err error) *processpb.ProcessEvent {
	end := &processpb.ProcessEvent_EndEvent{
		ExitCode: int32(state.ExitCode()),
		Exited:   state.Exited(),
		Status:   state.String(),
	}
	if err != nil {
		end.Error = new(err.Error())
	}
	return &processpb.ProcessEvent{Event: &processpb.ProcessEvent_End{End: end}}
}

func startEvent(pid uint32) *processpb.ProcessEvent {
	return &processpb.ProcessEvent{Event: &processpb.ProcessEvent_Start{Start: &processpb.ProcessEvent_StartEvent{Pid: pid}}}
}

func dataEvent(data *processpb.ProcessEvent_DataEvent) *processpb.ProcessEvent {
	return &processpb.ProcessEvent{Event: &processpb.ProcessEvent_Data{Data: data}}
}

func stdoutEvent(b []byte) *processpb.ProcessEvent {
	return dataEvent(&processpb.ProcessEvent_DataEvent{Output: &processpb.ProcessEvent_DataEvent_Stdout{Stdout: b}})
}

func stderrEvent(b []byte) *processpb.ProcessEvent {
	return dataEvent(&processpb.ProcessEvent_DataEvent{Output: &processpb.ProcessEvent_DataEvent_Stderr{Stderr: b}})
}

func ptyEvent(b []byte) *processpb.ProcessEvent {
	return dataEvent(&processpb.ProcessEvent_DataEvent{Output: &processpb.ProcessEvent_DataEvent_Pty{Pty: b}})
}

func keepaliveEvent() *processpb.ProcessEvent {
	return &processpb.ProcessEvent{Event: &processpb.ProcessEvent_Keepalive{Keepalive: &processpb.ProcessEvent_KeepAlive{}}}
}
