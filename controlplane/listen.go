package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
)

// ListenUnix listens on a unix socket that only this user may connect to. A
// socket that an earlier process left at the path is replaced. The path may
// have about 100 bytes. Closing the listener removes the socket, unless another
// has taken its place.
func ListenUnix(path string) (net.Listener, error) {
	// Made under another name, so that no client connects before the mode is set.
	temporary := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("removing an old socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	info, err := publishSocket(temporary, path)
	if err != nil {
		l.Close()
		os.Remove(temporary)
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	return &socketListener{Listener: l, path: path, info: info}, nil
}

func publishSocket(temporary, path string) (fs.FileInfo, error) {
	if err := os.Chmod(temporary, 0o600); err != nil {
		return nil, err
	}
	if err := os.Rename(temporary, path); err != nil {
		return nil, err
	}
	return os.Lstat(path)
}

type socketListener struct {
	net.Listener
	path string
	info fs.FileInfo
}

// Close stops listening and removes the socket if it is still ours.
func (l *socketListener) Close() error {
	if at, err := os.Lstat(l.path); err == nil && os.SameFile(at, l.info) {
		os.Remove(l.path)
	}
	return l.Listener.Close()
}
