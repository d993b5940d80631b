package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/local/node/initspec"
)

// runChild enters the namespaces and runs the command as a child, since a
// thread that joins a PID namespace stays outside of it and only its children
// are in. SIGTERM to podinit kills the child. The result is the child's exit
// code, 128 + n after signal n.
func runChild(s *initspec.Spec) (int, error) {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	if err := join(s.Join); err != nil {
		return 0, err
	}
	files := []uintptr{0, 1, 2}
	var master, slave *os.File
	if s.TTY {
		var err error
		if master, slave, err = openTerminal(); err != nil {
			return 0, fmt.Errorf("open a terminal: %w", err)
		}
		files = []uintptr{slave.Fd(), slave.Fd(), slave.Fd()}
	}
	if err := giveUp(s, false); err != nil {
		return 0, err
	}
	if s.Dir != "" {
		if err := os.Chdir(s.Dir); err != nil {
			return 0, fmt.Errorf("enter the working directory: %w", err)
		}
	}
	path, err := find(s.Args[0], s.Env)
	if err != nil {
		return 0, err
	}
	attr := &syscall.ProcAttr{Env: s.Env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true, Setctty: s.TTY}}
	if len(s.Join) > 0 {
		attr.Sys.Credential = &syscall.Credential{Uid: uint32(s.UID), Gid: uint32(s.GID)}
	}
	pid, err := syscall.ForkExec(path, s.Args, attr)
	if err != nil {
		return 0, execError(path, err)
	}
	_ = unix.Close(initspec.StatusFD) // says: started
	go func() {
		<-stop
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}()
	var copied chan struct{}
	if master != nil {
		_ = slave.Close() // or the copy would never see the terminal's end
		copied = serveTerminal(master)
	}
	var status syscall.WaitStatus
	for {
		if _, err = syscall.Wait4(pid, &status, 0, nil); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return 0, fmt.Errorf("wait for the command: %w", err)
	}
	if copied != nil {
		<-copied
	}
	if status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return status.ExitStatus(), nil
}

// join enters the namespaces on this thread. The mount namespace comes last:
// it needs a thread that shares its root and working directory with no other.
func join(all []initspec.Namespace) error {
	for _, ns := range all {
		if ns.Type == unix.CLONE_NEWNS {
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return fmt.Errorf("unshare the root: %w", err)
			}
		}
		if err := unix.Setns(ns.FD, ns.Type); err != nil {
			return fmt.Errorf("enter a namespace of the container: %w", err)
		}
	}
	return nil
}

// openTerminal opens a pair in the devpts that this thread sees as /dev/pts.
func openTerminal() (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, err
	}
	sfd, err := unix.Open("/dev/pts/"+strconv.Itoa(n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fd), "ptmx"), os.NewFile(uintptr(sfd), "pts"), nil
}

// serveTerminal copies between the terminal and podinit's own streams until
// the last process has closed it, and passes sizes on.
func serveTerminal(master *os.File) chan struct{} {
	go func() {
		lines := bufio.NewScanner(os.NewFile(initspec.ResizeFD, "resize"))
		for lines.Scan() {
			var size unix.Winsize
			if _, err := fmt.Sscan(lines.Text(), &size.Row, &size.Col); err == nil {
				_ = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &size)
			}
		}
	}()
	go func() { _, _ = io.Copy(master, os.Stdin) }()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(os.Stdout, master) // ends with EIO when no process has it open
	}()
	return done
}
