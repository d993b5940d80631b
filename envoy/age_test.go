package envoy

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/structpb"
)

// pods is an address in the life of which two sandboxes have it: the first's pod takes no
// connection, or is not there; a stand-in for the second's answers all.
type pods struct {
	fd   int
	port int
	// reached counts the requests that the stand-in got, connected its connections; one of
	// these is the filler's.
	reached, connected atomic.Int64
}

// silentPod drops all SYNs: its queue of connections is full.
func silentPod(t *testing.T) *pods {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	p := &pods{fd: fd, port: at.(*unix.SockaddrInet4).Port}
	filler, err := net.Dial("tcp", p.address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = filler.Close() })
	return p
}

func (p *pods) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// connecting waits until a connection to the pod is on its way.
func (p *pods) connecting(t *testing.T) {
	t.Helper()
	synSent := fmt.Sprintf(" 0100007F:%04X 02 ", p.port)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(10 * time.Second); ; {
		table, err := os.ReadFile("/proc/net/tcp")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(table), synSent) {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("Envoy does not connect")
		}
	}
}

// giveToNext lets the stand-in take and answer all connections.
func (p *pods) giveToNext(t *testing.T) {
	t.Helper()
	file := os.NewFile(uintptr(p.fd), "pod")
	listener, err := net.FileListener(file)
	if err != nil {
		t.Error(err)
		return
	}
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { p.reached.Add(1) }), ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			p.connected.Add(1)
		}
	}} //nolint:gosec // a test's
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
}

// longerThanCooldown is longer than addresses cool down by default, and ends before the SYN that a
// kernel without shortConnect sends after 7 s.
const longerThanCooldown = 6500 * time.Millisecond

// An Envoy that stands still after ExtProc's answer, for longer than an address cools down, sends
// the request nowhere when it goes on: whether it has read the answer, and whether it was
// connecting, without and with the fast path.
func TestEnvoyThatStoodStill(t *testing.T) {
	t.Parallel()
	modes := map[string]func(*testing.T) *world{
		"script": func(t *testing.T) *world { return startWorld(t, Options{}, true) },
		"module": func(t *testing.T) *world { return startFastWorld(t).world },
	}
	for mode, start := range modes {
		t.Run(mode+", answer unread", func(t *testing.T) {
			t.Parallel()
			w, p := start(t), silentPod(t)
			stopped := make(chan struct{})
			w.gateway.answer = func(string) *extprocv3.ProcessingResponse {
				_ = w.cmd.Process.Signal(syscall.SIGSTOP)
				defer close(stopped)
				return to(p.address())
			}
			status := w.ask(t)
			<-stopped
			w.standStill(t, p, status)
		})
		t.Run(mode+", connecting", func(t *testing.T) {
			t.Parallel()
			w, p := start(t), silentPod(t)
			w.gateway.answer = func(string) *extprocv3.ProcessingResponse { return to(p.address()) }
			status := w.ask(t)
			p.connecting(t)
			w.standStill(t, p, status)
		})
	}
	t.Run("script, worker held", func(t *testing.T) {
		t.Parallel()
		w, p := startWorld(t, Options{}, true), silentPod(t)
		release := make(chan func())
		w.gateway.answer = func(string) *extprocv3.ProcessingResponse {
			release <- w.holdWorker(t)
			return to(p.address())
		}
		status := w.ask(t)
		free := <-release
		if err := w.admin.Ready(t.Context()); err != nil {
			t.Errorf("the other threads: %v", err)
		}
		time.AfterFunc(longerThanCooldown, func() { p.giveToNext(t); free() })
		if got := <-status; got < 500 || p.reached.Load() != 0 {
			t.Errorf("status %d, the next pod got %d requests", got, p.reached.Load())
		}
	})
	t.Run("hit, connecting", func(t *testing.T) {
		t.Parallel()
		f, p := startFastWorld(t), silentPod(t)
		_, port := f.put(t, "known")
		f.answers(t, "known", port)
		status := f.ask(t, "X-Sandbox-Id", "known", "X-Sandbox-Port", strconv.Itoa(p.port))
		p.connecting(t)
		f.standStill(t, p, status)
	})
}

// ask sends a request and returns its status when there is one.
func (w *world) ask(t *testing.T, headers ...string) <-chan int {
	t.Helper()
	status := make(chan int, 1)
	go func() {
		resp, _ := w.get(t, "/", headers...)
		status <- resp.StatusCode
	}()
	return status
}

// holdWorker stops the one thread of Envoy that serves requests, and returns what lets it
// go on.
func (w *world) holdWorker(t *testing.T) func() {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", w.cmd.Process.Pid))
	if err != nil {
		t.Error(err)
	}
	worker := 0
	for _, name := range names {
		if comm, _ := os.ReadFile(name); strings.HasPrefix(string(comm), "wrk:worker") {
			worker, _ = strconv.Atoi(filepath.Base(filepath.Dir(name)))
		}
	}
	if worker == 0 {
		t.Error("Envoy has no worker thread")
		return func() {}
	}
	held, goOn := make(chan error), make(chan struct{})
	go func() { // a tracer is a thread
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := unix.PtraceSeize(worker)
		if err == nil {
			if err = unix.PtraceInterrupt(worker); err == nil {
				_, err = unix.Wait4(worker, nil, unix.WALL, nil)
			}
		}
		held <- err
		<-goOn
		_ = unix.PtraceDetach(worker)
	}()
	if err := <-held; err != nil {
		t.Errorf("hold Envoy's worker: %v", err)
	}
	return func() { close(goOn) }
}

// standStill stops Envoy for longer than an address cools down, and gives the address to the
// next pod meanwhile.
func (w *world) standStill(t *testing.T, p *pods, status <-chan int) {
	t.Helper()
	_ = w.cmd.Process.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { _ = w.cmd.Process.Signal(syscall.SIGCONT) })
	time.AfterFunc(longerThanCooldown, func() { p.giveToNext(t) })
	time.AfterFunc(longerThanCooldown+4*time.Second, func() { // a SYN may have come again
		if n := p.connected.Load(); n > 1 {
			t.Error("the kernel connected Envoy to the next pod")
		}
		_ = w.cmd.Process.Signal(syscall.SIGCONT)
	})
	if got := <-status; got < 500 {
		t.Errorf("status %d", got)
	}
	if n := p.reached.Load(); n != 0 {
		t.Errorf("the next pod got %d requests", n)
	}
}

// A request whose answer has no time, or one of a later boot, is refused.
func TestAnswersWithoutATime(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) *world{
		"script": func(t *testing.T) *world { return startWorld(t, Options{}, true) },
		"module": func(t *testing.T) *world { return startFastWorld(t).world },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t)
			for at, want := range map[float64]int{0: 503, bootMillis() + 60_000: 503, bootMillis(): 200} {
				w.gateway.answer = func(string) *extprocv3.ProcessingResponse {
					answer := to(w.pod.Listener.Addr().String())
					fields := answer.DynamicMetadata.Fields["sandlane"].GetStructValue().Fields
					if delete(fields, "answered"); at != 0 {
						fields["answered"] = structpb.NewNumberValue(at)
					}
					return answer
				}
				if resp, body := w.get(t, "/"); resp.StatusCode != want {
					t.Errorf("answered at %v: status %d, %s", at, resp.StatusCode, body)
				}
			}
		})
	}
}
