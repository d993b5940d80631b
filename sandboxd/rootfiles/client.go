package rootfiles

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/sandlane/sandlane/sandboxd/process"
)

// ErrUnavailable is wrapped by the errors of calls that the child did not do, or whose end is
// not known.
var ErrUnavailable = errors.New("the process that does file calls as root is not there")

var errClosed = errors.New("sandboxd is shutting down")

// Options are the settings of a Client.
type Options struct {
	// Program is the program of which Main is a part.
	Program string
	// Path is the child's PATH.
	Path string
	// UserFiles is the directory of passwd and group; empty means /etc.
	UserFiles string
	// Processes starts the child.
	Processes *process.Service
}

// Client passes calls to the child. It is safe for concurrent use.
type Client struct {
	options Options
	http    proxy

	starting chan struct{} // has an element while one call looks for the child, or starts it

	mu     sync.Mutex // guards the rest
	closed bool
	child  *child // nil while there is none
	ending sync.WaitGroup
}

// child is one process that does file calls.
type child struct {
	control *net.UnixConn
	process *process.Launched
}

// New returns a client, whose first call starts the child.
func New(options Options) *Client {
	c := &Client{options: options, starting: make(chan struct{}, 1)}
	c.http = newProxy(c)
	return c
}

// Close ends the child and its calls. Later calls fail.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	if c.child != nil {
		_ = c.child.control.Close()
		c.child.process.Signal(syscall.SIGKILL)
	}
	c.mu.Unlock()
	c.ending.Wait()
	c.http.close()
}

// connect returns a new connection to the child. ctx bounds the start of one.
func (c *Client) connect(ctx context.Context, kind byte) (*net.UnixConn, error) {
	own, other, err := pair()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer func() { _ = other.Close() }()
	for range 2 { // it may have died just now
		var running *child
		if running, err = c.running(ctx); err != nil {
			break
		}
		if err = send(running.control, []byte{kind}, other); err == nil {
			return own, nil
		}
		c.forget(running)
	}
	_ = own.Close()
	return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// running returns the child, and starts it if there is none. While the sandbox is frozen none
// can be started, and ctx ends the wait.
func (c *Client) running(ctx context.Context) (*child, error) {
	select {
	case c.starting <- struct{}{}:
		defer func() { <-c.starting }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if there, err := c.current(); there != nil || err != nil {
		return there, err
	}
	control, other, err := pair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = other.Close() }()
	started, err := c.options.Processes.Launch(ctx, &exec.Cmd{
		Path: c.options.Program, Args: []string{Name, c.options.UserFiles}, Dir: "/",
		Env: []string{"PATH=" + c.options.Path}, Stderr: os.Stderr, ExtraFiles: []*os.File{other},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // without Credential, as commands of sudo
	})
	if err != nil {
		_ = control.Close()
		return nil, fmt.Errorf("starting it: %w", err)
	}
	running := &child{control: control, process: started}
	if err := c.note(running); err != nil {
		_ = control.Close() // which ends it
		started.Wait()
		return nil, err
	}
	return running, nil
}

// note makes a process the child until it ends.
func (c *Client) note(running *child) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	c.child = running
	c.ending.Go(func() {
		running.process.Wait()
		c.forget(running)
	})
	return nil
}

// current returns the child; nil if there is none.
func (c *Client) current() (*child, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	return c.child, nil
}

// forget notes that a child has ended or does not answer.
func (c *Client) forget(ended *child) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = ended.control.Close() // which ends it, if it has not ended
	if c.child == ended {
		c.child = nil
	}
}
