package gateway

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/test/kubetest"
)

// deaf returns a port that listens and takes no connection: its queue is full.
func deaf(t *testing.T) (port string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(name.(*syscall.SockaddrInet4).Port))
	for range 10 {
		c, err := net.DialTimeout("tcp", at.String(), 200*time.Millisecond)
		if err != nil {
			return strconv.Itoa(int(at.Port()))
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Fatal("the queue is never full")
	return ""
}

// A tenant's clients, which try again and again, cannot reach its sandbox: its port is closed,
// or takes no connection. The hits of another tenant go on.
func TestUnreachableSandboxTakesNoOthersStreams(t *testing.T) {
	for name, port := range map[string]func(*testing.T) string{
		"no server":           func(*testing.T) string { return "1" },
		"a server that hangs": deaf,
	} {
		t.Run(name, func(t *testing.T) {
			const streams, clients = 1000, 1600
			w := newCrowd(t, streams, false)
			other, greedy, to := w.route("other", 9), w.route("greedy", 1), port(t)
			kubetest.Eventually(t, "a hit", func() error { return w.hit(other) })
			connections := make([]*http.Client, clients/100)
			for i := range connections {
				connections[i] = w.client(t.Context())
			}
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			defer cancel()
			stop := w.storm(ctx, connections, greedy, to)
			defer stop()
			failed, tried := 0, 0
			for ; ctx.Err() == nil; tried++ {
				if err := w.hit(other); err != nil {
					if failed++; failed == 1 {
						t.Errorf("another tenant's hit: %v", err)
					}
				}
			}
			t.Logf("%d of another tenant's %d hits failed", failed, tried)
		})
	}
}

func (w *crowd) hit(id string) error {
	if status, body := w.get(w.t.Context(), http.DefaultClient, id, "/"); status != http.StatusOK {
		return fmt.Errorf("%d %s", status, body)
	}
	return nil
}

// storm has 100 clients on each connection ask for a port of a sandbox again and again until
// ctx ends; wait returns after their last answer.
func (w *crowd) storm(ctx context.Context, connections []*http.Client, id, port string) (wait func()) {
	w.t.Helper()
	var all sync.WaitGroup
	for _, connection := range connections {
		for range 100 {
			all.Go(func() {
				for backoff.Sleep(ctx, 20*time.Millisecond) {
					w.get(ctx, connection, id, "/", "X-Sandbox-Port", port)
				}
			})
		}
	}
	return all.Wait
}
