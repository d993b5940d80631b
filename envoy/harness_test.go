package envoy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	alsv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sandlane/sandlane/extproc"
	"github.com/sandlane/sandlane/test/ports"
)

// gateway stands in for ExtProc: it answers every request with answer and
// keeps what it was shown.
type gateway struct {
	extprocv3.UnimplementedExternalProcessorServer
	alsv3.UnimplementedAccessLogServiceServer

	answer func(path string) *extprocv3.ProcessingResponse // nil ends the stream without an answer

	mu   sync.Mutex
	seen []map[string]string
	logs chan *alsv3.StreamAccessLogsMessage
}

func (g *gateway) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	req, err := stream.Recv()
	if err != nil {
		return err
	}
	headers := map[string]string{}
	for _, h := range req.GetRequestHeaders().GetHeaders().GetHeaders() {
		headers[h.GetKey()] = string(h.GetRawValue())
	}
	g.mu.Lock()
	g.seen = append(g.seen, headers)
	g.mu.Unlock()
	resp := g.answer(headers[":path"])
	if resp == nil {
		return nil
	}
	return stream.Send(resp)
}

func (g *gateway) last() map[string]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen[len(g.seen)-1]
}

func (g *gateway) StreamAccessLogs(stream alsv3.AccessLogService_StreamAccessLogsServer) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil
		}
		select {
		case g.logs <- m:
		case <-stream.Context().Done():
		}
	}
}

// to sends a request on to an address, as ExtProc does.
func to(address string) *extprocv3.ProcessingResponse {
	md, err := structpb.NewStruct(map[string]any{extproc.MetadataNamespace: map[string]any{
		"destination": address, "sandbox_id": "abc", "port": 8000, "pod_uid": "u", "claim": "c", "answered": bootMillis(),
	}})
	if err != nil {
		panic(err)
	}
	return &extprocv3.ProcessingResponse{
		Response:        &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}},
		DynamicMetadata: md,
	}
}

// bootMillis is the time that ExtProc writes into its answers.
func bootMillis() float64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return float64(t.Nano()) / 1e6
}

// world is a running Envoy with its gateway and one sandbox.
type world struct {
	dir     string
	url     string
	admin   Admin
	gateway *gateway
	pod     *httptest.Server
	podSaw  chan *http.Request // nil keeps nothing; unset before the first request
	cmd     *exec.Cmd
}

func startWorld(t *testing.T, o Options, withGateway bool) *world {
	t.Helper()
	bin := envoyBin(t)
	dir, err := os.MkdirTemp("", "envoy") // short enough for a unix socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	o.RunDir, o.Port = dir, freePort(t)
	w := &world{
		dir:     dir,
		url:     fmt.Sprintf("http://127.0.0.1:%d", o.Port),
		admin:   Admin{Socket: filepath.Join(dir, AdminSocketName)},
		gateway: &gateway{logs: make(chan *alsv3.StreamAccessLogsMessage, 100)},
		podSaw:  make(chan *http.Request, 100),
	}
	w.pod = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.podSaw != nil {
			w.podSaw <- r
		}
		rw.Header().Set("Server", "pod")
		if r.URL.Path == "/slow" {
			rw.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		fmt.Fprint(rw, "from the pod")
	}))
	t.Cleanup(w.pod.Close)
	podAddress := w.pod.Listener.Addr().String()
	w.gateway.answer = func(string) *extprocv3.ProcessingResponse { return to(podAddress) }
	if withGateway {
		w.serveGateway(t, filepath.Join(dir, ExtProcSocketName))
	}
	file := filepath.Join(dir, "envoy.json")
	writeConfig(t, file, o)
	w.run(t, bin, file)
	return w
}

func (w *world) serveGateway(t *testing.T, socket string) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	w.serveGatewayOn(t, l)
}

func (w *world) serveGatewayOn(t *testing.T, l net.Listener) {
	t.Helper()
	s := grpc.NewServer(grpc.InitialConnWindowSize(16 << 20)) // as ExtProc's
	extprocv3.RegisterExternalProcessorServer(s, w.gateway)
	alsv3.RegisterAccessLogServiceServer(s, w.gateway)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
}

// run starts Envoy, waits until it serves, and shows its log if the test fails.
func (w *world) run(t *testing.T, bin, file string) {
	t.Helper()
	var log strings.Builder
	cmd := exec.Command(bin, Args(file, 1)...)
	cmd.Stderr = &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.cmd = cmd
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Envoy's log:\n%s", log.String())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for w.admin.Ready(ctx) != nil {
		select {
		case <-ctx.Done():
			t.Fatal("Envoy did not become ready")
		case <-tick.C:
		}
	}
}

// get sends a request and returns the answer with its body read.
func (w *world) get(t *testing.T, path string, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	return resp, string(body)
}

func freePort(t testing.TB) int {
	t.Helper()
	port, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	return port
}
