package extproc

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	dataaccesslogv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/sandlane/sandlane/routing"
)

// start runs the server until the test ends, and connects to it.
func (f *fixture) start(t testing.TB) (conn *grpc.ClientConn, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Start(ctx) }()
	conn, err := grpc.NewClient("unix://"+f.o.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
	})
	// The first call waits for the socket.
	if _, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	return conn, stop
}

func exchange(t testing.TB, conn *grpc.ClientConn, headers ...string) *answer {
	t.Helper()
	stream, err := extprocv3.NewExternalProcessorClient(conn).Process(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := newStream(t.Context(), headers...)
	if err := stream.Send(s.req); err != nil {
		t.Fatal(err)
	}
	s.recvd = 1
	for {
		r, err := stream.Recv()
		if err != nil {
			break
		}
		s.sent = append(s.sent, r)
	}
	return s.answer(t)
}

func TestOverASocket(t *testing.T) {
	f := newFixture(t, withDefaultPool)
	f.put(t, testRoute("hello"))
	f.act.do = func(_ context.Context, r routing.Request) error { f.put(t, testRoute(r.ID)); return nil }
	conn, stop := f.start(t)
	if fi, err := os.Stat(f.o.Socket); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("socket mode %v, %v", fi.Mode(), err)
	}
	if a := exchange(t, conn, host("hello")...); a.destination == "" || a.waited {
		t.Errorf("hit: %+v", a)
	}
	if a := exchange(t, conn, host("new")...); a.destination == "" || !a.waited {
		t.Errorf("first request: %+v", a)
	}
	if a := exchange(t, conn, ":authority", "localhost", ":path", "/"); a.status != 404 {
		t.Errorf("no target: %+v", a)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(f.o.Socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

func TestHealth(t *testing.T) {
	var ready atomic.Bool
	f := newFixture(t, func(o *Options) { o.Ready = ready.Load })
	conn, _ := f.start(t)
	check := func(want healthv1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		r, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
		if err != nil || r.GetStatus() != want {
			t.Errorf("health %v, %v; want %v", r.GetStatus(), err, want)
		}
	}
	check(healthv1.HealthCheckResponse_NOT_SERVING)
	ready.Store(true)
	check(healthv1.HealthCheckResponse_SERVING)
	f.lease.held.Store(false)
	check(healthv1.HealthCheckResponse_NOT_SERVING)
	f.lease.held.Store(true)
	f.Drain()
	check(healthv1.HealthCheckResponse_NOT_SERVING)
}

// Envoy never closes its access log stream; the server stops all the same, and
// lets the requests in hand finish.
func TestStopWithOpenStreams(t *testing.T) {
	f := newFixture(t, withDefaultPool)
	parked, proceed := make(chan struct{}), make(chan struct{})
	f.act.do = func(_ context.Context, r routing.Request) error {
		close(parked)
		<-proceed
		f.put(t, testRoute(r.ID))
		return nil
	}
	logged := make(chan struct{})
	f.activity.onEnd = func() { close(logged) }
	conn, stop := f.start(t)
	r := testRoute("hello")
	f.put(t, r)
	logs, err := accesslogv3.NewAccessLogServiceClient(conn).StreamAccessLogs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := logs.Send(&accesslogv3.StreamAccessLogsMessage{LogEntries: &accesslogv3.StreamAccessLogsMessage_HttpLogs{
		HttpLogs: &accesslogv3.StreamAccessLogsMessage_HTTPAccessLogEntries{LogEntry: []*dataaccesslogv3.HTTPAccessLogEntry{
			{}, {CommonProperties: entry("hello", r.ClaimID, &dataaccesslogv3.ResponseFlags{UpstreamConnectionFailure: true})},
		}},
	}}); err != nil {
		t.Fatal(err)
	}
	stream, err := extprocv3.NewExternalProcessorClient(conn).Process(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(newStream(t.Context(), host("new")...).req); err != nil {
		t.Fatal(err)
	}
	<-parked
	<-logged
	if f.cache.Get("hello") != nil {
		t.Error("the access log's upstream failure dropped no route")
	}
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	if err := logs.RecvMsg(&accesslogv3.StreamAccessLogsResponse{}); status.Code(err) != codes.Unavailable {
		t.Errorf("access log stream: %v", err)
	}
	close(proceed)
	for range 2 { // the override and the answer
		if _, err := stream.Recv(); err != nil {
			t.Errorf("parked request: %v", err)
		}
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestStopIsBounded(t *testing.T) {
	f := newFixture(t, withDefaultPool, func(o *Options) { o.ShutdownTimeout = time.Millisecond })
	parked := make(chan struct{})
	f.act.do = func(ctx context.Context, _ routing.Request) error {
		close(parked)
		<-ctx.Done()
		return ctx.Err()
	}
	conn, stop := f.start(t)
	stream, err := extprocv3.NewExternalProcessorClient(conn).Process(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(newStream(t.Context(), host("new")...).req); err != nil {
		t.Fatal(err)
	}
	<-parked
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestListenUnix(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale.sock")
	ln, err := net.Listen("unix", stale)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listenUnix(stale, 0o660); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a socket in use: %v", err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = ln.Close()
	ln, err = listenUnix(stale, 0o660)
	if err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	if fi, err := os.Stat(stale); err != nil || fi.Mode().Perm() != 0o660 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	_ = ln.Close()

	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenUnix(file, 0o600); err == nil {
		t.Error("replaced a file that is no socket")
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "precious" {
		t.Errorf("the file was touched: %q, %v", b, err)
	}
	if _, err := listenUnix(filepath.Join(dir, "no", "dir.sock"), 0o600); err == nil {
		t.Error("listened in a folder that does not exist")
	}
}

func TestStartFailsWithoutASocket(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Socket = filepath.Join(t.TempDir(), "no", "dir.sock") })
	if err := f.Start(t.Context()); err == nil {
		t.Error("no error")
	}
	if f.NeedLeaderElection() {
		t.Error("every gateway serves")
	}
}

func TestOptions(t *testing.T) {
	if _, err := NewServer(Options{}); err == nil {
		t.Error("empty options are valid")
	}
	valid := newFixture(t).o
	for name, change := range map[string]func(*Options){
		"no socket":        func(o *Options) { o.Socket = "" },
		"no cache":         func(o *Options) { o.Cache = nil },
		"no lease":         func(o *Options) { o.Lease = nil },
		"no activity":      func(o *Options) { o.Activity = nil },
		"negative wait":    func(o *Options) { o.MaxWait = -1 },
		"pool, no ns":      func(o *Options) { o.FirstRequestPool.Name = "echo" },
		"pool, upper case": func(o *Options) { o.FirstRequestPool.Name, o.FirstRequestPool.Namespace = "Echo", "default" },
	} {
		o := valid
		change(&o)
		if err := o.Validate(); err == nil {
			t.Errorf("%s: valid", name)
		}
	}
	if err := valid.Validate(); err != nil {
		t.Error(err)
	}
}
