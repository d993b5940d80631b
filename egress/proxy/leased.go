package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// errNotHeld is why nothing more is read of a sandbox.
var errNotHeld = errors.New("the lease is lost")

// leased is a sandbox's connection of which nothing is taken that came after this process had
// lost its lease. A process that stood still until then finds what was sent meanwhile, by a
// sandbox that may be over, before it notices the loss and closes the connection.
type leased struct {
	net.Conn // tcp, without the methods that would pass Read by
	tcp      *net.TCPConn
	held     func() bool
}

func newLeased(c net.Conn, held func() bool) *leased {
	return &leased{Conn: c, tcp: c.(*net.TCPConn), held: held}
}

// Read implements io.Reader. The lease is looked at when the bytes are there: they came before.
func (c *leased) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.held() {
		return 0, errNotHeld
	}
	return n, err
}

// copyTo copies until the end of the sandbox's bytes, by splice(2), and notes them in the link.
// It is told how many bytes are there before it looks at the lease, and takes no more.
func (c *leased) copyTo(up net.Conn, l *link) error {
	for {
		there, err := c.there()
		switch {
		case err != nil:
			return err
		case !c.held():
			return errNotHeld
		case there == 0:
			return nil
		}
		n, err := io.CopyN(up, c.tcp, int64(there))
		if n > 0 {
			l.move(&l.sent, n)
		}
		if err != nil {
			return fmt.Errorf("pass a sandbox's bytes on: %w", err)
		}
	}
}

// there waits until bytes can be read, and returns how many; 0: their end.
func (c *leased) there() (n int, err error) {
	raw, err := c.tcp.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("wait for a sandbox's bytes: %w", err)
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		if n, failed = unix.IoctlGetInt(int(fd), unix.SIOCINQ); failed != nil || n > 0 {
			return true
		}
		var one [1]byte
		peeked, _, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return false
		case err != nil:
			failed = err
		default:
			n = peeked // one, if bytes have come since
		}
		return true
	})
	if err := errors.Join(err, failed); err != nil {
		return 0, fmt.Errorf("wait for a sandbox's bytes: %w", err)
	}
	return n, nil
}
