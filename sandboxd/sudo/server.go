package sudo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/sandlane/sandlane/sandboxd/process"
	"github.com/sandlane/sandlane/sandboxd/users"
)

// A request goes as follows.
//
// The client connects to a Unix socket and sends its request and its descriptors 0 to 2,
// which the command gets, so that no output passes through sandboxd. From then on each byte
// from the client is the number of a signal for the command's process group. The server sends
// only one answer: the exit code or an error.
//
//	reading   the server has accepted, and checked SO_PEERCRED before it read a byte
//	running   the command is a child of sandboxd, in a session of its own
//	over      the answer is sent, and the connection is closed
//
// Each connection has a goroutine that serves it and, while its command runs, one that reads
// signals. When a step fails:
//
//	another user connects            an error, and nothing is read
//	no whole request within 10 s     an error; the descriptors are closed
//	the command cannot be started    an error
//	the connection ends              the group is killed, unless the command has exited;
//	                                 so a killed client ends its command
//	sandboxd is shut down            the groups get SIGTERM and, after the grace, SIGKILL
//	sandboxd dies                    the client prints that and exits with 1

const (
	// requestTimeout bounds the time until a client has sent its request.
	requestTimeout = 10 * time.Second
	// acceptPause is the delay after a connection could not be accepted, for example for
	// lack of descriptors.
	acceptPause = 100 * time.Millisecond
)

// Options are the settings of a Server. Only Log may be nil.
type Options struct {
	Users Users
	// Processes starts the commands.
	Processes *process.Service
	// Path is the PATH of commands, in which they are also looked up.
	Path string
	// Log gets a line when a connection cannot be accepted.
	Log io.Writer
}

// Users finds users of the sandbox.
type Users interface {
	// Named returns a user by name; the empty name is the default user.
	Named(name string) (users.User, error)
	// Names returns the names of a user and a group.
	Names(uid, gid uint32) (user, group string)
}

// Server runs commands for clients on a socket. It is safe for concurrent use.
type Server struct {
	options  Options
	listener *net.UnixListener
	stopped  chan struct{}  // closed by Close
	clients  sync.WaitGroup // Add is called with mu held and before stopping

	mu       sync.Mutex // guards all below
	stopping bool
	open     map[*net.UnixConn]*process.Launched // nil before the command runs
}

// Listen makes the socket, in a folder that only root may write to, and serves it until
// Close. sandboxd must be root.
func Listen(socket string, options Options) (*Server, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("running commands for sudo: sandboxd is not root")
	}
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return nil, fmt.Errorf("making the socket for sudo: %w", err)
	}
	_ = os.Remove(socket) // of an earlier process of this container
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("making the socket for sudo: %w", err)
	}
	if err := os.Chmod(socket, 0o666); err != nil { // every user may connect; admit refuses
		_ = listener.Close()
		return nil, fmt.Errorf("making the socket for sudo: %w", err)
	}
	if options.Log == nil {
		options.Log = io.Discard
	}
	s := &Server{options: options, listener: listener, stopped: make(chan struct{}), open: map[*net.UnixConn]*process.Launched{}}
	s.clients.Go(s.accept)
	return s, nil
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			_, _ = fmt.Fprintln(s.options.Log, "sandboxd: accepting a client of sudo:", err)
			select {
			case <-s.stopped:
				return
			case <-time.After(acceptPause):
			}
			continue
		}
		s.mu.Lock()
		if s.stopping {
			_ = conn.Close()
		} else {
			s.open[conn] = nil
			s.clients.Go(func() { s.handle(conn) })
		}
		s.mu.Unlock()
	}
}

// Close accepts no more clients, terminates the commands, kills those that are left when the
// context ends, and returns when all have ended. Call it once.
func (s *Server) Close(ctx context.Context) {
	close(s.stopped)
	_ = s.listener.Close()
	s.mu.Lock()
	s.stopping = true
	for conn, command := range s.open {
		if command == nil {
			_ = conn.Close()
			continue
		}
		command.Signal(syscall.SIGTERM)
	}
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		s.clients.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	s.mu.Lock()
	for _, command := range s.open {
		if command != nil {
			command.Signal(syscall.SIGKILL)
		}
	}
	s.mu.Unlock()
	<-ended
}

// handle serves one client.
func (s *Server) handle(conn *net.UnixConn) {
	defer func() {
		s.mu.Lock()
		delete(s.open, conn)
		s.mu.Unlock()
		_ = conn.Close()
	}()
	code, err := s.serve(conn)
	a := answer{Code: code}
	if err != nil {
		a = answer{Error: err.Error()}
	}
	_ = conn.SetWriteDeadline(time.Now().Add(requestTimeout)) // it is short: a client that does not read is none
	_ = json.NewEncoder(conn).Encode(a)
}

// serve runs the command of one client and returns its exit code.
func (s *Server) serve(conn *net.UnixConn) (int, error) {
	client, err := s.admit(conn)
	if err != nil {
		return 0, err
	}
	_ = conn.SetReadDeadline(time.Now().Add(requestTimeout))
	r, files, err := receive(conn)
	defer func() { closeAll(files) }()
	if err != nil {
		return 0, fmt.Errorf("reading the request: %w", err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	if r.Validate {
		return 0, nil
	}
	cmd, err := s.command(r, client)
	if err != nil {
		return 0, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[1], files[2]
	command, err := s.launch(conn, cmd)
	if err != nil {
		return 0, err
	}
	closeAll(files) // only the command has them open now, so that a pipe ends with it
	files = nil
	read := make(chan struct{})
	go func() {
		defer close(read)
		forward(conn, command)
	}()
	state := command.Wait()
	_ = conn.CloseRead() // ends forward
	<-read
	return exitCode(state), nil
}

// launch starts the command unless the server is being closed.
func (s *Server) launch(conn *net.UnixConn, cmd *exec.Cmd) (*process.Launched, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil, errors.New("sandboxd is shutting down")
	}
	command, err := s.options.Processes.Launch(context.Background(), cmd)
	if err != nil {
		return nil, fmt.Errorf("running %s: %w", cmd.Path, err)
	}
	s.open[conn] = command
	return command, nil
}

// forward forwards the client's signals, and kills the command when the client is gone.
func forward(conn *net.UnixConn, command *process.Launched) {
	signals := make([]byte, 16)
	for {
		n, err := conn.Read(signals)
		for _, sig := range signals[:n] {
			command.Signal(syscall.Signal(sig))
		}
		if err != nil {
			command.Abandon()
			return
		}
	}
}

// exitCode returns the exit code that a shell would have: after a signal, 128 and its number.
func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
