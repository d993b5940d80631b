// Package ports finds TCP ports for programs that tests and benchmarks start and
// that must be told their port.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// The ports are below those that Linux gives to outgoing connections (32768 and up
// by default): a port of that range that is free now may be such a connection's
// before the program listens, on a machine that opens many.
const first, last = 10_000, 19_999

var given sync.Map // ports that Free has returned

// Free returns a port of 127.0.0.1 on which no program listens now, and that it has not returned
// to this process before: a program may be told several before it listens on any.
func Free() (int, error) {
	err := errors.New("all that were tried have been returned before")
	for range 100 {
		port := first + rand.IntN(last-first+1)
		if _, before := given.LoadOrStore(port, true); before {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("find a free port between %d and %d: %w", first, last, err)
}
