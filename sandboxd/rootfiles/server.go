package rootfiles

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/files"
	"github.com/sandlane/sandlane/sandboxd/filesystem"
	"github.com/sandlane/sandlane/sandboxd/filesystempb"
	"github.com/sandlane/sandlane/sandboxd/users"
)

const (
	// Name is the name under which the program of sandboxd is the child.
	Name = "sandboxd-files"
	// controlFD is the child's end of the socket on which connections come.
	controlFD = 3
	// maxMessage bounds one Connect message, as in sandboxd.
	maxMessage = 64 << 20
)

// Main is the child: it takes the directory of passwd and group as its argument, serves the
// connections that sandboxd passes to it until sandboxd has gone, and returns the exit code.
func Main(args []string) int {
	control, err := toConn(os.NewFile(controlFD, "control"))
	if err != nil || len(args) != 1 {
		_, _ = fmt.Fprintln(os.Stderr, "sandboxd: file calls: started by another program than sandboxd:", err)
		return 2
	}
	newServer(args[0]).serve(control)
	return 0
}

// server does the calls in the child.
type server struct {
	caller *caller
	http   *http.Server
	passed passed
}

func newServer(userFiles string) *server {
	c := &caller{users: users.Database{Dir: userFiles}}
	c.workdir.Store(new(string))
	mux := http.NewServeMux()
	mux.Handle(filesystempb.NewFilesystemHandler(filesystem.New(c), connect.WithReadMaxBytes(maxMessage)))
	return &server{caller: c, http: &http.Server{Handler: mux}, passed: passed{conns: make(chan net.Conn), closed: make(chan struct{})}} //nolint:gosec // requests come from sandboxd
}

// serve returns when the control socket has ended; calls are cut by the end of the process.
func (s *server) serve(control *net.UnixConn) {
	go func() { _ = s.http.Serve(s.passed) }()
	defer close(s.passed.closed)
	for {
		kind := make([]byte, 1)
		n, f, err := receive(control, kind, "connection")
		if err != nil || n == 0 {
			return
		}
		if f == nil {
			continue
		}
		conn, err := toConn(f)
		if err != nil {
			continue // the call ends with its connection
		}
		switch kind[0] {
		case kindHTTP:
			s.passed.conns <- conn
		case kindOpen:
			go s.open(conn)
		default:
			_ = conn.Close()
		}
	}
}

// passed is a listener of connections that another process passes.
type passed struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p passed) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (passed) Close() error   { return nil }
func (passed) Addr() net.Addr { return &net.UnixAddr{Name: Name, Net: "unix"} }

// caller tells the filesystem service what sandboxd says of a request.
type caller struct {
	users   users.Database
	workdir atomic.Pointer[string] // that of the last request; it changes only at /init
}

// User returns the user of a request, who acts as root.
func (c *caller) User(header http.Header) (users.User, error) {
	var who onBehalf
	if err := json.Unmarshal([]byte(header.Get(onBehalfHeader)), &who); err != nil {
		return users.User{}, connect.NewError(connect.CodeInternal, err)
	}
	c.workdir.Store(&who.Workdir)
	who.User.AsRoot = true
	return who.User, nil
}

// Workdir returns the default working directory.
func (c *caller) Workdir() string { return *c.workdir.Load() }

// Names returns the names of a user and a group.
func (c *caller) Names(uid, gid uint32) (user, group string) {
	return c.users.Name(uid), c.users.GroupName(gid)
}

// open does one order.
func (s *server) open(conn *net.UnixConn) {
	defer func() { _ = conn.Close() }()
	line, f, err := readLine(conn, "")
	if f != nil {
		_ = f.Close()
	}
	var r order
	if err != nil || json.Unmarshal(line, &r) != nil {
		return
	}
	r.User.AsRoot = true
	local := files.Local(r.User)
	var got result
	var written *files.Written
	f = nil
	switch r.Do {
	case "read":
		f, err = local.Read(r.Path)
	case "find":
		f, err = local.Find(r.Path)
	case "write":
		if written, err = local.Write(r.Path, r.Metadata); err == nil {
			f, got.Metadata = written.File, written.Metadata
		}
	case "remove":
		err = local.Remove(r.Paths)
	}
	if err != nil {
		got = result{Status: files.Status(err), Error: err.Error()}
	}
	text, err := json.Marshal(got)
	if err == nil {
		err = send(conn, append(text, '\n'), f)
	}
	if f != nil {
		// A program that is open for writing cannot be run, and sandboxd may close it any time.
		_ = f.Close()
	}
	if written != nil {
		last := make([]byte, 1)
		if err == nil {
			_, err = io.ReadFull(conn, last)
		}
		_ = written.End(err == nil && last[0] == keep)
	}
}
