package sudo

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// admit returns the user of the client process, which the kernel recorded when it connected.
// It returns an error unless that is root or the sandbox's default user.
func (s *Server) admit(conn *net.UnixConn) (peer, error) {
	credentials, err := credentialsOf(conn)
	if err != nil {
		return peer{}, fmt.Errorf("finding the user of the client: %w", err)
	}
	name, _ := s.options.Users.Names(credentials.Uid, credentials.Gid)
	client := peer{name: name, uid: credentials.Uid, gid: credentials.Gid}
	if client.uid == 0 {
		return client, nil
	}
	allowed, err := s.options.Users.Named("")
	if err != nil {
		return peer{}, fmt.Errorf("finding the sandbox's default user: %w", err)
	}
	if client.uid != allowed.UID {
		return peer{}, fmt.Errorf("user %s may not use sudo in this sandbox: only root and %s may", name, allowed.Name)
	}
	return client, nil
}

func credentialsOf(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var credentials *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		credentials, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return credentials, failed
}
