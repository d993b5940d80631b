package extproc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
)

// Server answers Envoy. It is a manager.Runnable that needs no leadership; its
// gRPC methods are safe for concurrent use.
type Server struct {
	extprocv3.UnimplementedExternalProcessorServer
	accesslogv3.UnimplementedAccessLogServiceServer
	healthv1.UnimplementedHealthServer

	o               Options
	metrics         *Metrics
	failedUpstreams *failedUpstreams
	draining        atomic.Bool
	stop            chan struct{}            // closed when Start's context is done: ends access log streams
	logLimit        rate.Sometimes           // for errors that a client could cause in numbers
	rejectionLogs   map[string]*rate.Limiter // by reason, for logRejection
}

// NewServer returns a server that is not listening yet. It fails if the options
// are not valid, and panics if the metrics are registered already.
func NewServer(o Options) (*Server, error) {
	o.Complete()
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("extproc options: %w", err)
	}
	return &Server{
		o:               o,
		metrics:         NewMetrics(o.Registerer),
		failedUpstreams: newFailedUpstreams(),
		stop:            make(chan struct{}),
		logLimit:        rate.Sometimes{Interval: time.Second},
		rejectionLogs:   newRejectionLogs(),
	}, nil
}

// NeedLeaderElection is false: every gateway serves.
func (s *Server) NeedLeaderElection() bool { return false }

// Drain turns the health check to NOT_SERVING and refuses new activations.
// Requests for running sandboxes are still answered. It cannot be undone.
func (s *Server) Drain() { s.draining.Store(true) }

// Start listens on the socket, replacing a stale one, and serves until ctx is
// done; then it drains, waits at most Options.ShutdownTimeout for the requests
// in hand, and returns nil. Call it once.
func (s *Server) Start(ctx context.Context) error {
	ln, err := listenUnix(s.o.Socket, s.o.SocketMode)
	if err != nil {
		return err
	}
	srv := s.grpcServer()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	select {
	case err := <-served:
		return fmt.Errorf("serving %s: %w", s.o.Socket, err)
	case <-ctx.Done():
	}
	s.Drain()
	close(s.stop)
	kill := time.AfterFunc(s.o.ShutdownTimeout, srv.Stop)
	defer kill.Stop()
	srv.GracefulStop()
	<-served
	return nil
}

// maxStreams is how many requests one connection of Envoy's (there is one per
// Envoy worker) may have in hand: far more than Envoy sends.
const maxStreams = 100_000

// connWindow holds the request headers of a burst of 10,000 new streams, so
// that flow control never stalls one request behind others.
const connWindow = 16 << 20

func (s *Server) grpcServer() *grpc.Server {
	srv := grpc.NewServer(
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.InitialConnWindowSize(connWindow),
		grpc.InitialWindowSize(1<<20),
		grpc.WaitForHandlers(true),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	extprocv3.RegisterExternalProcessorServer(srv, s)
	accesslogv3.RegisterAccessLogServiceServer(srv, s)
	healthv1.RegisterHealthServer(srv, s)
	return srv
}

// listenUnix listens on a unix socket. A socket without a listener is
// removed first; anything else at that path is left alone.
func listenUnix(path string, mode os.FileMode) (net.Listener, error) {
	switch fi, err := os.Lstat(path); {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("looking for a stale socket: %w", err)
	case fi.Mode().Type() != os.ModeSocket:
		return nil, fmt.Errorf("listening on %s: it exists and is not a socket", path)
	default:
		if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
			_ = c.Close()
			return nil, fmt.Errorf("listening on %s: another process does already", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("removing a stale socket: %w", err)
		}
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("setting the mode of %s: %w", path, err), ln.Close())
	}
	return ln, nil
}
