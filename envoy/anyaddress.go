package envoy

import "golang.org/x/sys/unix"

// AnyAddress is the address that a listener has for clients of each family that this
// machine knows: "::", which takes IPv4 too (see socketAddress), or "0.0.0.0" where the
// kernel has no IPv6. Ask on the machine, and in the network namespace, of the Envoy.
func AnyAddress() string {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "0.0.0.0"
	}
	defer func() { _ = unix.Close(fd) }()
	if unix.Bind(fd, &unix.SockaddrInet6{}) != nil {
		return "0.0.0.0"
	}
	return "::"
}
