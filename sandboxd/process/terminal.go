package process

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/processpb"
	"github.com/sandlane/sandlane/sandboxd/users"
)

func (p *proc) openTerminal(request *processpb.PTY, user users.User) (child []*os.File, err error) {
	master, slave, err := newTerminal()
	if err != nil {
		return nil, err
	}
	child = []*os.File{slave}
	p.outputs, p.terminal = []output{{master, ptyEvent}}, master
	p.input.use(master, true)
	if err := p.resize(request); err != nil {
		return child, err
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = slave, slave, slave
	p.cmd.SysProcAttr.Setctty = true // of descriptor 0
	return child, give(child, p.cmd, user)
}

// newTerminal opens both sides of a new terminal.
//
// The master is in the runtime's network poller, so that deadlines end a read and a write
// that wait, and neither keeps a thread. File.Fd takes a file out of it, so nothing may call
// that on the master; package pty does at each step.
func newTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("opening a terminal: %w", err)
	}
	if slave, err = openSlave(master); err != nil {
		_ = master.Close()
		return nil, nil, fmt.Errorf("opening a terminal: %w", err)
	}
	return master, slave, nil
}

func openSlave(master *os.File) (*os.File, error) {
	if err := master.SetDeadline(time.Time{}); err != nil { // it is not in the poller
		return nil, err
	}
	var number uint32
	if err := control(master, func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil { // unlocks it
			number, err = unix.IoctlGetUint32(fd, unix.TIOCGPTN)
		}
		return err
	}); err != nil {
		return nil, err
	}
	return os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
}

// resize sets the size of the terminal, unless the request names none.
func (p *proc) resize(request *processpb.PTY) error {
	size := request.GetSize()
	if size.GetCols() == 0 || size.GetRows() == 0 {
		return nil
	}
	return control(p.terminal, func(fd int) error {
		window := &unix.Winsize{Col: uint16(size.GetCols()), Row: uint16(size.GetRows())}
		if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, window); err != nil {
			return fmt.Errorf("resizing the terminal: %w", err)
		}
		return nil
	})
}

// control calls a function with a file's descriptor, which stays as it is, unlike with
// File.Fd.
func control(f *os.File, do func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := conn.Control(func(fd uintptr) { failed = do(int(fd)) }); err != nil {
		return err
	}
	return failed
}
