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

// Options of a Server; all but Link and Log must be set.
type Options struct {
	// Config is the user's.
	Config *rest.Config
	// SystemNamespace is where the leases of gateways are.
	SystemNamespace string
	// Processes finds gateways and controllers.
	Processes processes.Finder
	// Link makes a link that opens a port of a sandbox once; nil: the console opens none.
	Link func(ctx context.Context, api client.Client, s *v1alpha1.Sandbox, port uint16) (string, error)
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
	gateways map[string]processes.Metrics // as asked last; nil while no page is open
	unread   string                       // why the processes could not be listed
	may      rights
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

// lastRequests is how long requests may take to end after Serve's context.
const lastRequests = 5 * time.Second

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
		work.Go(func() { s.askOften(ctx) })
	}
	server := &http.Server{
		Handler: s.handler(l.Addr()), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx }, // requests end with it
	}
	// A request may begin the work: it is waited for before the work is.
	work.Go(func() {
		<-ctx.Done()
		last, done := context.WithTimeout(context.WithoutCancel(ctx), lastRequests)
		defer done()
		if server.Shutdown(last) != nil {
			_ = server.Close()
		}
	})
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the console: %w", err)
	}
	return nil
}

const (
	askEvery = 10 * time.Second
	// watched is for how long after the last request of a page is still asked.
	watched = time.Minute
)

// askOften asks what is not watched while a page is open, and forgets it while none is.
func (s *Server) askOften(ctx context.Context) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		if s.bell.heard(watched) {
			s.ask(ctx)
			s.bell.ring()
		} else {
			s.mu.Lock()
			s.gateways = nil
			s.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// ask reads the metrics of gateways, and what the user may do.
func (s *Server) ask(ctx context.Context) {
	may, notAsked := s.askRights(ctx)
	all, err := s.o.Processes(ctx)
	found := processes.Ask(ctx, all)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gateways, s.unread = found, ""
	if err != nil {
		s.unread = err.Error()
	}
	if notAsked == nil {
		s.may = may
	}
}
