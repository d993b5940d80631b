package rootfiles

import (
	"errors"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// The kinds of connections that the child gets.
const (
	kindHTTP = 'h' // requests to the filesystem service
	kindOpen = 'o' // one order, and its result with a descriptor
)

// pair makes the two ends of a connection: one to use, and one to give away.
func pair() (own *net.UnixConn, other *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	other = os.NewFile(uintptr(fds[1]), "connection")
	if own, err = toConn(os.NewFile(uintptr(fds[0]), "connection")); err != nil {
		_ = other.Close()
		return nil, nil, err
	}
	return own, other, nil
}

// toConn takes a file over.
func toConn(f *os.File) (*net.UnixConn, error) {
	defer func() { _ = f.Close() }()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

// send sends bytes, with a file unless it is nil.
func send(conn *net.UnixConn, data []byte, f *os.File) error {
	if f == nil {
		_, err := conn.Write(data)
		return err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { // File.Fd would make it block
		_, _, failed = conn.WriteMsgUnix(data, unix.UnixRights(int(fd)), nil)
	}); err != nil {
		return err
	}
	return failed
}

// receive fills a part of buf, and returns the file that came with it, with a name; nil if
// none did.
func receive(conn *net.UnixConn, buf []byte, name string) (n int, f *os.File, err error) {
	control := make([]byte, unix.CmsgSpace(4))
	n, controls, _, _, err := conn.ReadMsgUnix(buf, control)
	if err != nil {
		return 0, nil, err // n is -1
	}
	if n == 0 {
		return 0, nil, io.EOF
	}
	if controls == 0 {
		return n, nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(control[:controls])
	if err != nil {
		return n, nil, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil || len(fds) != 1 {
			return n, nil, errors.Join(err, errors.New("a message carries one descriptor at most"))
		}
		f = os.NewFile(uintptr(fds[0]), name)
	}
	return n, f, nil
}

// readLine reads up to the end of a line, and the file that comes with it.
func readLine(conn *net.UnixConn, name string) (line []byte, f *os.File, err error) {
	buf := make([]byte, 16<<10)
	for len(line) == 0 || line[len(line)-1] != '\n' {
		n, came, err := receive(conn, buf, name)
		if came != nil {
			if f != nil {
				_ = f.Close()
			}
			f = came
		}
		line = append(line, buf[:n]...)
		if err == nil && len(line) > maxLine {
			err = errors.New("a line is too long")
		}
		if err != nil {
			return line, f, err
		}
	}
	return line, f, nil
}
