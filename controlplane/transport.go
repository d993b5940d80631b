package controlplane

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const (
	// connectionAge is how long a connection lasts: until then a certificate that
	// has expired since, or is not trusted any more, may still be in use.
	connectionAge = 10 * time.Minute
	// connectionGrace is what calls in progress get then; clients give up sooner.
	connectionGrace = 2 * DefaultPollTimeout
	// handshakeTimeout is how long a peer may be connected without having shown
	// its certificate.
	handshakeTimeout = 5 * time.Second
)

// transport is how a server is reached. Between pods only peers that show a good
// certificate may call; on a unix socket its file mode decides.
func (o *ServerOptions) transport() ([]grpc.ServerOption, error) {
	if o.TLS != nil {
		return []grpc.ServerOption{
			grpc.Creds(o.TLS.server()),
			grpc.ConnectionTimeout(handshakeTimeout),
			grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: connectionAge, MaxConnectionAgeGrace: connectionGrace}),
		}, nil
	}
	if a := o.Listener.Addr(); strings.HasPrefix(a.Network(), "tcp") {
		return nil, fmt.Errorf("control-plane server: %s can be reached from other machines: TLS files are required", a)
	}
	return nil, nil
}

// transport is how a controller reaches a gateway.
func (o *ClientOptions) transport(address string) (grpc.DialOption, error) {
	if o.TLS != nil {
		return grpc.WithTransportCredentials(o.TLS.client()), nil
	}
	if !strings.HasPrefix(address, "unix:") {
		return nil, errors.New("it is on another machine: TLS files are required")
	}
	return grpc.WithTransportCredentials(insecure.NewCredentials()), nil
}

// reporting logs refused peers. A gateway that refuses its controller is found
// by that; the controller logs its own side of it, with each call that fails.
type reporting struct {
	credentials.TransportCredentials
	log *slog.Logger
	now *rate.Sometimes // any client can connect, and must not fill the log
}

func newReporting(c credentials.TransportCredentials, log *slog.Logger) reporting {
	return reporting{c, log, &rate.Sometimes{First: 5, Interval: 10 * time.Second}}
}

func (r reporting) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := r.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		r.now.Do(func() {
			r.log.Warn("refused a connection to the control plane", "from", conn.RemoteAddr().String(), "error", err)
		})
	}
	return secured, info, err
}

func (r reporting) Clone() credentials.TransportCredentials {
	return reporting{r.TransportCredentials.Clone(), r.log, r.now}
}
