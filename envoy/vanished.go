package envoy

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"golang.org/x/sys/unix"
)

// A pod can vanish without ending its connections: its machine dies, or its network goes while a
// connection to it is half made. Envoy has no time limit of its own, for a request
// may take as long as it likes, so the kernel must find out. There are two cases,
// and it is to take half a minute in both:
//
//   - the pod has everything that was sent: keepalive probes are not answered. A
//     connection on which something is yet to be acknowledged is not probed;
//   - it has not: tries to send it again are not answered. The kernel tries fifteen
//     times (tcp_retries2), with pauses that double from 0.2 s to two minutes: a
//     quarter of an hour. RetransmitMax bounds the pauses.
//
// TCP_USER_TIMEOUT would do for both, and would also cut off a server that reads
// nothing for so long: it counts the time since the window closed, although the
// pod answers each probe of it.
const (
	keepaliveTime     = 15 * time.Second
	keepaliveInterval = 5 * time.Second
	keepaliveProbes   = 3
	// DefaultRetransmitMax makes the kernel give up after 27 s.
	DefaultRetransmitMax = 2 * time.Second
)

// KernelRetransmitMax is DefaultRetransmitMax where this machine's kernel knows
// of it (Linux 6.15), else 0.
func KernelRetransmitMax() time.Duration {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Close(fd) }()
	if unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS, int(DefaultRetransmitMax.Milliseconds())) != nil {
		return 0
	}
	return DefaultRetransmitMax
}

func upstreamKeepalive() *corev3.TcpKeepalive {
	return &corev3.TcpKeepalive{
		KeepaliveTime: u32(int(keepaliveTime.Seconds())), KeepaliveInterval: u32(int(keepaliveInterval.Seconds())),
		KeepaliveProbes: u32(keepaliveProbes),
	}
}

// upstreamSockets bounds the time of a connect, and the pauses between retransmissions
// unless those are left to the kernel.
func upstreamSockets(o *Options) *corev3.BindConfig {
	options := []*corev3.SocketOption{shortConnect()}
	if o.RetransmitMax == 0 {
		return &corev3.BindConfig{SocketOptions: options}
	}
	return &corev3.BindConfig{SocketOptions: append(options, &corev3.SocketOption{
		Description: "pauses between retransmissions",
		Level:       unix.IPPROTO_TCP, Name: unix.TCP_RTO_MAX_MS,
		Value: &corev3.SocketOption_IntValue{IntValue: o.RetransmitMax.Milliseconds()},
		State: corev3.SocketOption_STATE_PREBIND,
	})}
}
