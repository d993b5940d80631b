package envoy

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// turnAway takes over the address of a listener with as many sockets, one per
// worker, and lets the kernel drop every attempt to connect until letIn is
// called; further calls do nothing. Connections that the listener has, or whose handshake is
// under way, are left alone. A client tries again after a second: by then no process listens
// and the client is refused, or the next Envoy accepts it.
//
// How: sockets of ours join the listener's (SO_REUSEPORT, which Envoy sets). A
// program attached to the group sends each newcomer to one of ours, and a filter
// on ours drops all that arrives. The kernel fills the place of a socket that
// closes with the last of the group, and the program names a place: with one
// socket more than the listener has, that place stays ours while all of the
// listener's close.
//
// It works only for a process of the listener's user, in its network namespace.
func turnAway(listener netip.AddrPort, sockets int) (letIn func(), err error) {
	var ours []int
	letIn = sync.OnceFunc(func() { // a number that was closed may be another file's
		for _, fd := range ours {
			_ = unix.Close(fd)
		}
	})
	for range sockets + 1 {
		fd, err := deafSocket(listener)
		if err != nil {
			letIn()
			return func() {}, err
		}
		ours = append(ours, fd)
	}
	if err := attach(ours[0], unix.SO_ATTACH_REUSEPORT_CBPF, uint32(sockets)); err != nil {
		letIn()
		return func() {}, fmt.Errorf("choose which socket gets new connections: %w", err)
	}
	return letIn, nil
}

// deafSocket listens and hears nothing. The filter is there before it listens:
// a connection that was made here would be reset at the end.
func deafSocket(listener netip.AddrPort) (int, error) {
	family, address := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(listener.Port()), Addr: listener.Addr().As16()})
	if listener.Addr().Is4() {
		family, address = unix.AF_INET, &unix.SockaddrInet4{Port: int(listener.Port()), Addr: listener.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("make a socket: %w", err)
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		attach(fd, unix.SO_ATTACH_FILTER, 0),
	)
	if err == nil {
		err = unix.Bind(fd, address)
	}
	if err == nil {
		err = unix.Listen(fd, 1)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("share %s: %w", listener, err)
	}
	return fd, nil
}

// attach gives a socket a program that always returns one number.
func attach(fd, option int, number uint32) error {
	program := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: number}}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, option, &unix.SockFprog{Len: 1, Filter: &program[0]})
}
