package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// The sizes of inet_diag_req_v2 and inet_diag_msg of sock_diag(7), and the offsets of the
// used fields.
const (
	diagRequest  = 56
	diagProtocol = 1
	diagStates   = 4
	diagAnswer   = 72
	diagState    = 1
	diagPort     = 4
	diagAddress  = 8
)

// diag asks the kernel which sockets listen.
func diag() (all []netip.AddrPort, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("asking the kernel which sockets listen: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		if all, err = diagFamily(all, fd, family); err != nil {
			return nil, fmt.Errorf("asking the kernel which sockets listen: %w", err)
		}
	}
	return all, nil
}

// diagFamily appends the sockets of one family of addresses.
func diagFamily(all []netip.AddrPort, fd int, family byte) ([]netip.AddrPort, error) {
	request := make([]byte, unix.SizeofNlMsghdr+diagRequest)
	binary.NativeEndian.PutUint32(request, uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	body := request[unix.SizeofNlMsghdr:]
	body[0], body[diagProtocol] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(body[diagStates:], 1<<unix.BPF_TCP_LISTEN)
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	buffer := make([]byte, 32<<10) // the kernel sends no larger message
	for {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		messages, err := syscall.ParseNetlinkMessage(buffer[:n])
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			switch m.Header.Type {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR: // either may have the negative number of an error
				if len(m.Data) >= 4 {
					if code := int32(binary.NativeEndian.Uint32(m.Data)); code < 0 {
						return nil, unix.Errno(-code)
					}
				}
				return all, nil
			case unix.SOCK_DIAG_BY_FAMILY:
				if at, ok := parseDiag(m.Data); ok {
					all = append(all, at)
				}
			}
		}
	}
}

// parseDiag reads the address of a socket that listens.
func parseDiag(answer []byte) (netip.AddrPort, bool) {
	if len(answer) < diagAnswer || answer[diagState] != unix.BPF_TCP_LISTEN {
		return netip.AddrPort{}, false
	}
	length := 16
	if answer[0] == unix.AF_INET {
		length = 4
	}
	addr, ok := netip.AddrFromSlice(answer[diagAddress : diagAddress+length])
	return netip.AddrPortFrom(addr.Unmap(), binary.BigEndian.Uint16(answer[diagPort:])), ok
}
