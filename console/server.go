package console

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/console/explain"
	"github.com/sandlane/sandlane/console/processes"
	"github.com/sandlane/sandlane/kubeclient"
)

//go:embed page
var page embed.FS

// Options of a Server; all but Log must be set.
type Options struct {
	// Config is the user's.
	Config *rest.Config
	// SystemNamespace is where the leases of gateways are.
	SystemNamespace string
	// Processes finds gateways and controllers.
	Processes processes.Finder
	// Log gets what the server cannot show on the page; default slog.Default().
	Log *slog.Logger
}

// Server is the console of one cluster.
type Server struct {
	o     Options
	api   client.WithWatch // live; its informers wait for the API server, its other reads do not
	read  explain.Reader
	token string
	kinds map[string]*kind
	reach *reach
	bell  *bell

	begin sync.Once
	run   func() // what begin does

	mu       sync.Mutex
	gateways map[string]processes.Metrics // as asked last
	unread   string                       // why the processes could not be listed
}

// New makes a server. It connects to nothing.
func New(o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	s := &Server{o: o, token: rand.Text(), bell: newBell(), kinds: kindsOf(o.SystemNamespace)}
	s.reach = &reach{changed: s.bell.ring}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("prepare the console: %w", err)
	}
	config := rest.CopyConfig(o.Config)
	config.QPS, config.Timeout = -1, 0 // watches last; each request of a page has a deadline
	s.reach.wrap(config)
	options := client.Options{Scheme: scheme, Mapper: kubeclient.RESTMapper(scheme)}
	patient, err := client.NewWithWatch(kubeclient.Patient(config), options)
	if err != nil {
		return nil, fmt.Errorf("prepare the console: %w", err)
	}
	if s.api, err = client.NewWithWatch(config, options); err != nil {
		return nil, fmt.Errorf("prepare the console: %w", err)
	}
	s.read = explain.Reader{API: s.api, SystemNamespace: o.SystemNamespace, Processes: o.Processes}
	for _, k := range s.kinds {
		if err := k.watch(patient, s.bell.ring); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// URL is the address to open for a server that listens at addr. It has the token: show it to
// the user alone.
func (s *Server) URL(addr net.Addr) string { return "http://" + addr.String() + "/#" + s.token }

// Listen listens on an address, which must be of loopback.
func Listen(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", address, err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("--listen %s: the console acts with your rights: it listens on loopback alone, such as 127.0.0.1:0", address)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", address, err)
	}
	return l, nil
}

// Serve serves until ctx ends. Call it once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	s.run = func() {
		for _, k := range s.kinds {
			work.Go(func() { k.informer.RunWithContext(ctx) })
		}
		work.Go(func() { s.askGateways(ctx) })
	}
	server := &http.Server{Handler: s.handler(l.Addr()), ReadHeaderTimeout: 5 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the console: %w", err)
	}
	return nil
}

const (
	askEvery = 10 * time.Second
	// watched is for how long after the last request gateways are still asked.
	watched = time.Minute
)

// askGateways reads the metrics of gateways while a page is open.
func (s *Server) askGateways(ctx context.Context) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		if s.bell.heard(watched) {
			all, err := s.o.Processes(ctx)
			found := processes.Ask(ctx, all)
			s.mu.Lock()
			s.gateways, s.unread = found, ""
			if err != nil {
				s.unread = err.Error()
			}
			s.mu.Unlock()
			s.bell.ring()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
