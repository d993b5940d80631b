package local

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"syscall"
)

// Ports are chosen below the range that the kernel gives to outgoing
// connections, so that none takes a port between its choice and its use.
const (
	firstPort = 18_000
	lastPort  = 31_999
)

// freePorts returns n different ports on 127.0.0.1 without a listener, none
// of them the one that is spoken for.
func freePorts(n, taken int) ([]int, error) {
	var ports []int
	for range 50 * n {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if port == taken || listenable(port) != nil || slices.Contains(ports, port) {
			continue
		}
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("no %d free ports between %d and %d on 127.0.0.1", n, firstPort, lastPort)
}

// checkPort returns why a port cannot be used. Envoy itself would share one with another
// Envoy and report nothing (SO_REUSEPORT).
func checkPort(port int) error {
	err := listenable(port)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("port %d on 127.0.0.1 is in use: choose another with --port, or --port 0 for any free one", port)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("port %d may not be used by this user: choose one above 1023 with --port", port)
	case err != nil:
		return fmt.Errorf("port %d cannot be used: %w", port, err)
	}
	return nil
}

func listenable(port int) error {
	l, err := net.Listen("tcp4", loopback(port))
	if err != nil {
		return err
	}
	return l.Close()
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
