package envoy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"golang.org/x/sys/unix"
)

// quick is the shortest RetransmitMax: the kernel gives up after 14.4 s.
const quick = time.Second

// listenWith listens as a pod that a test makes go silent.
func listenWith(t *testing.T, options func(fd int) error) net.Listener {
	t.Helper()
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = options(int(fd)) }), err)
	}}
	l, err := config.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func needRetransmitMax(t *testing.T) {
	t.Helper()
	if KernelRetransmitMax() == 0 {
		t.Skip("needs a kernel with TCP_RTO_MAX_MS (Linux 6.15)")
	}
}

// A request to a pod that vanished in the middle of the handshake is sent again
// and again without an answer; no client waits for that as long as the kernel
// would by itself, a quarter of an hour.
func TestVanishedPod(t *testing.T) {
	t.Parallel()
	needRetransmitMax(t)
	// The pod takes in the first packet of a connection and no other.
	onlySYN := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 13}, // TCP's flags
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: 2, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	pod := listenWith(t, func(fd int) error {
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(onlySYN)), Filter: &onlySYN[0]})
	})
	w := startWorld(t, Options{RetransmitMax: quick}, true)
	w.gateway.answer = func(string) *extprocv3.ProcessingResponse { return to(pod.Addr().String()) }
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("no answer after %v: %v", time.Since(begun), err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusBadGateway || !strings.Contains(string(body), noHTTPMessage) {
		t.Errorf("%d %s, want the 502 of a pod that does not answer", resp.StatusCode, body)
	}
	t.Logf("answered after %v", time.Since(begun).Round(time.Millisecond))
}

// A pod that reads nothing for longer than it takes to give one up is still
// there: its kernel answers. What is sent to it is not cut off.
func TestSlowReaderIsNotVanished(t *testing.T) {
	t.Parallel()
	needRetransmitMax(t)
	const size, pause = 64 << 20, 20 * time.Second
	pod := listenWith(t, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 64<<10) })
	w := startWorld(t, Options{RetransmitMax: quick}, true)
	w.gateway.answer = func(string) *extprocv3.ProcessingResponse { return to(pod.Addr().String()) }
	var sent atomic.Int64
	served := make(chan error, 1)
	go func() {
		served <- func() error {
			conn, err := pod.Accept()
			if err != nil {
				return err
			}
			defer conn.Close()
			req, err := http.ReadRequest(bufio.NewReader(conn))
			if err != nil {
				return err
			}
			<-time.After(pause)
			if n := sent.Load(); n >= size {
				return errors.New("nothing had to wait for the pod")
			}
			if n, err := io.Copy(io.Discard, req.Body); err != nil || n != size {
				return errors.Join(errors.New("the body broke off"), err)
			}
			_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			return err
		}()
	}()
	body := io.TeeReader(io.LimitReader(zeros{}, size), counter{&sent})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url, body)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = size
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("%s, want the pod's answer", resp.Status)
	}
	_ = pod.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) { c.n.Add(int64(len(p))); return len(p), nil }
