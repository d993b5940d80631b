package suite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// startPatience is how long a process may take to be ready: a gateway first reads all
	// sandboxes, which may be a hundred thousand.
	startPatience = 3 * time.Minute
	// stopPatience is how long a process may take to end before it is killed.
	stopPatience = 15 * time.Second
	askEvery     = 20 * time.Millisecond
)

// Process is a running program under test.
type Process struct {
	Name string
	cmd  *exec.Cmd
	log  string
	in   io.WriteCloser
	out  *bufio.Reader
	pipe io.Closer     // the pipe from which out reads
	done chan struct{} // closed when it has ended; err is set then
	err  error
}

// Start runs a program until Stop, with more environment, and waits until ready returns nil.
// Ask reads what the program prints.
func (e *Env) Start(ctx context.Context, name string, env []string, ready func(context.Context) error, path string, args ...string) (*Process, error) {
	p := &Process{Name: name, cmd: exec.Command(path, args...), log: filepath.Join(e.Dir, name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close()
	p.cmd.Stderr = log
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	out, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer w.Close()
	p.cmd.Stdout, p.out, p.pipe = w, bufio.NewReader(out), out
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	if err := p.await(ctx, ready); err != nil {
		p.Stop()
		return nil, fmt.Errorf("start %s: %w; the end of its log:\n%s", name, err, p.tail())
	}
	return p, nil
}

func (p *Process) await(ctx context.Context, ready func(context.Context) error) error {
	err := await(ctx, ready, p.done)
	select {
	case <-p.done:
		if err != nil {
			return fmt.Errorf("it ended: %w", errors.Join(p.err, err))
		}
	default:
	}
	return err
}

// Await waits until ready returns nil.
func Await(ctx context.Context, ready func(context.Context) error) error {
	return await(ctx, ready, nil)
}

// await calls ready again and again until it returns nil, patience is over, or gone is
// closed; gone may be nil.
func await(ctx context.Context, ready func(context.Context) error, gone <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-gone:
			return err
		case <-ctx.Done():
			return fmt.Errorf("not in time: %w", err)
		case <-tick.C:
		}
	}
}

// Stop ends the process and waits for it. A nil Process is stopped already.
func (p *Process) Stop() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopPatience):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	_ = p.pipe.Close()
}

// Ask sends an empty line to the program and reads a number from it.
func (p *Process) Ask() (float64, error) {
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		return 0, fmt.Errorf("ask %s: %w", p.Name, err)
	}
	line, err := p.out.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("ask %s: %w", p.Name, err)
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
	if err != nil {
		return 0, fmt.Errorf("ask %s: %w", p.Name, err)
	}
	return n, nil
}

// Ended returns nil while the process runs, and afterwards an error that says how it ended,
// with the end of its log.
func (p *Process) Ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended: %s; the end of its log:\n%s", p.Name, p.cmd.ProcessState, p.tail())
	default:
		return nil
	}
}

func (p *Process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

// Answers returns a readiness check that succeeds if the address accepts connections.
func Answers(network, address string) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return err
		}
		return c.Close()
	}
}

// Get returns a readiness check that succeeds if the URL answers with 200.
func Get(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", url, resp.Status)
		}
		return nil
	}
}
