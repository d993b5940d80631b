package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// A connection of the machine's can outlive the pod at its other end without ever
// being told. Processes that end close their connections, and the kernel of the
// pod's network says so at once, with two exceptions, both after the pod was made
// unreachable while something was on its way:
//
//   - the acknowledgement of its last answer could not reach it. It sends that
//     answer again, and holds back the end of the connection until the answer is
//     through;
//   - the last packet of the handshake could not reach it. It knows of no connection.
//
// When its network goes, what it was about to say goes too. The machine's end stays
// established: it sends the next request again and again, in vain, for up to a
// quarter of an hour. So the code that removes a network also severs the connections that
// still lead there, and a client that waits for an answer learns at once that there will be
// none.

// severed are the states of a connection that sever ends, as bits: all but those of
// a listener and of one that is over.
const severed = 1<<(netlink.TCP_CLOSING+1) - 1 - 1<<netlink.TCP_LISTEN - 1<<netlink.TCP_TIME_WAIT

// sever resets this machine's TCP connections to the addresses in a prefix. Call
// it when nothing can answer on them any more and before any of them is handed
// out again: it makes no difference between a pod and its successor. A kernel
// that cannot do it leaves them to time out.
func sever(to netip.Prefix) error {
	find := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
	find.AddRawData(append(diagRequest(severed, make([]byte, diagIDLen)), diagTo(to)...))
	found, err := find.Execute(unix.NETLINK_INET_DIAG, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the connections to %s: %w", to, err)
	}
	var errs []error
	for _, msg := range found {
		if len(msg) < diagIDAt+diagIDLen {
			return fmt.Errorf("list the connections to %s: an entry of %d bytes", to, len(msg))
		}
		destroy := nl.NewNetlinkRequest(nl.SOCK_DESTROY, unix.NLM_F_ACK)
		destroy.AddRawData(diagRequest(severed, msg[diagIDAt:diagIDAt+diagIDLen]))
		_, err := destroy.Execute(unix.NETLINK_INET_DIAG, 0)
		switch {
		case err == nil, errors.Is(err, unix.ENOENT): // has ended meanwhile
		case errors.Is(err, unix.EOPNOTSUPP):
			return nil
		default:
			errs = append(errs, fmt.Errorf("reset a connection to %s: %w", to, err))
		}
	}
	return errors.Join(errs...)
}

// The kernel's structures for questions about sockets (linux/inet_diag.h).
const (
	diagIDAt  = 4  // of the identity in an answer, behind four single bytes
	diagIDLen = 48 // ports, addresses, interface and cookie
	// Attribute and operation of a filter.
	diagBytecode = 1
	diagToPrefix = 8
	diagOpLen    = 4
)

// diagRequest is struct inet_diag_req_v2.
func diagRequest(states uint32, id []byte) []byte {
	b := []byte{unix.AF_INET, unix.IPPROTO_TCP, 0, 0}
	return append(binary.NativeEndian.AppendUint32(b, states), id...)
}

// diagTo is the filter that lets sockets to the prefix pass: one operation, which
// leads to the end if it holds, and past it if not.
func diagTo(to netip.Prefix) []byte {
	address := to.Addr().As4()
	condition := []byte{unix.AF_INET, byte(to.Bits()), 0, 0, 0xff, 0xff, 0xff, 0xff} // any port
	condition = append(condition, address[:]...)
	end := uint8(diagOpLen + len(condition))
	code := binary.NativeEndian.AppendUint16([]byte{diagToPrefix, end}, uint16(end)+diagOpLen)
	return nl.NewRtAttr(diagBytecode, append(code, condition...)).Serialize()
}
