package envoy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// While newcomers are turned away none of them connects, whichever of the
// listener's sockets close first; after that they connect or are refused.
func TestTurnAway(t *testing.T) {
	t.Parallel()
	for _, close := range [][]int{{}, {0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
		t.Run(fmt.Sprint(close), func(t *testing.T) {
			t.Parallel()
			lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
				var err error
				return errors.Join(c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }), err)
			}}
			address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
			var sockets []net.Listener
			for range 3 {
				l, err := lc.Listen(t.Context(), "tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				sockets = append(sockets, l)
			}
			wantDial(t, address, nil)
			letIn, err := turnAway(netip.MustParseAddrPort(address), 3)
			if err != nil {
				t.Fatal(err)
			}
			defer letIn()
			wantDial(t, address, context.DeadlineExceeded)
			for _, i := range close {
				sockets[i].Close()
				wantDial(t, address, context.DeadlineExceeded)
			}
			letIn()
			if slices.Equal(close, []int{}) {
				wantDial(t, address, nil)
			} else {
				wantDial(t, address, syscall.ECONNREFUSED)
			}
		})
	}
}

// A socket that others do not share stays whose it is.
func TestTurnAwayFromAnOthersSocket(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := turnAway(netip.MustParseAddrPort(l.Addr().String()), 1); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("turned newcomers away from a socket that is not shared: %v", err)
	}
	wantDial(t, l.Addr().String(), nil)
}

// wantDial connects a few times: a group of sockets spreads connections.
func wantDial(t *testing.T, address string, want error) {
	t.Helper()
	for range 8 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if errors.Is(want, context.DeadlineExceeded) {
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		}
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		cancel()
		if c != nil {
			c.Close()
		}
		var timeout net.Error
		if errors.Is(want, context.DeadlineExceeded) && errors.As(err, &timeout) && timeout.Timeout() {
			continue
		}
		if !errors.Is(err, want) || want == nil && err != nil {
			t.Fatalf("dial: %v, want %v", err, want)
		}
	}
}
