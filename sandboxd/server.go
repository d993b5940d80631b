package sandboxd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/access"
	"github.com/sandlane/sandlane/sandboxd/files"
	"github.com/sandlane/sandlane/sandboxd/filesystem"
	"github.com/sandlane/sandlane/sandboxd/filesystempb"
	"github.com/sandlane/sandlane/sandboxd/identity"
	"github.com/sandlane/sandlane/sandboxd/process"
	"github.com/sandlane/sandlane/sandboxd/processpb"
	"github.com/sandlane/sandlane/sandboxd/usage"
	"github.com/sandlane/sandlane/sandboxd/users"
)

const (
	// maxMessage bounds one Connect message.
	maxMessage = 64 << 20
	// headerTimeout bounds the time for a request's header. Bodies and answers
	// may take as long as they like.
	headerTimeout = 30 * time.Second
	// idleTimeout is longer than any proxy before us keeps a connection, so that
	// none is closed under a request.
	idleTimeout = 11 * time.Minute
)

// Server is one agent.
type Server struct {
	options    Options
	caller     *caller
	processes  *process.Service
	filesystem *filesystem.Service
	usage      *usage.Meter
	http       *http.Server
	rest       *rest
	restoring  *restoring
}

// New returns a server that is not listening yet.
func New(options Options) *Server {
	options.Complete()
	settings := access.Options{
		Users: users.Database{Dir: options.UserFiles, Home: options.Home}, DefaultUser: options.DefaultUser,
		InitKey: options.InitKey, PodUID: options.PodUID, Open: options.Open,
	}
	switch {
	case options.DefaultUser != "":
	case options.Home != "":
		settings.DefaultUser = settings.Users.Own().Name
	default:
		var err error
		if settings.DefaultUser, err = userOfImage(options.Environ, settings.Users); err != nil {
			_, _ = fmt.Fprintln(options.Log, "sandboxd:", err)
		}
	}
	if options.SetClock {
		settings.SetClock = setClock
	}
	restoring := newRestoring()
	settings.Begins, settings.Restored = restoring.seal, restoring.restored
	state := access.New(settings)
	id := identity.New(options.RunDir)
	if err := id.Write(); err != nil {
		_, _ = fmt.Fprintln(options.Log, "sandboxd:", err)
	}
	caller := &caller{State: state, identity: id, imageEnv: commandEnv(options.Environ), workdir: options.Workdir}
	s := &Server{
		options:    options,
		caller:     caller,
		processes:  process.New(caller, process.Options{Retention: options.Retention, Score: options.Score, Log: options.Log}),
		filesystem: filesystem.New(caller),
		usage:      &usage.Meter{Disk: home(caller)},
		restoring:  restoring,
	}
	s.rest = newRest(options.Freezer, s.processes, options.Log)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	s.http = &http.Server{
		Handler:           s.rest.guard(state.Guard(s.routes(caller))),
		ConnContext:       ownConnection,
		ConnState:         s.rest.connections.note,
		Protocols:         protocols,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
	}
	return s
}

func (s *Server) routes(caller *caller) http.Handler {
	mux := http.NewServeMux()
	limit := connect.WithReadMaxBytes(maxMessage)
	mux.Handle(processpb.NewProcessHandler(s.processes, limit))
	mux.Handle(filesystempb.NewFilesystemHandler(s.filesystem, limit))
	contents := files.New(caller)
	mux.HandleFunc("GET /files", contents.Download)
	mux.HandleFunc("POST /files", contents.Upload)
	mux.HandleFunc("POST /files/compose", contents.Compose)
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNoContent)
	})
	mux.Handle("GET /metrics", s.usage)
	mux.HandleFunc("GET /envs", caller.Envs)
	mux.HandleFunc("GET /init", caller.Challenge)
	mux.HandleFunc("POST /init", s.init(caller))
	mux.HandleFunc("POST /freeze", s.order(caller, "freeze", s.rest.freeze))
	mux.HandleFunc("POST /unfreeze", s.order(caller, "unfreeze", s.rest.unfreeze))
	mux.HandleFunc("POST /archive", s.archive(caller))
	mux.HandleFunc("POST /restore", s.restore(caller))
	for _, path := range []string{"/collapse", "/fsfreeze", "/fsthaw", "/upgrade"} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, _ *http.Request) {
			access.Error(w, http.StatusNotImplemented, "sandboxd has nothing behind "+path+": pausing is the business of the machine around it")
		})
	}
	return mux
}

// home is where the sandbox's data grows: the default user's home. The root file
// system may be another, and small.
func home(caller *caller) string {
	if u, err := caller.Named(""); err == nil {
		if _, err := os.Stat(u.Home); err == nil {
			return u.Home
		}
	}
	return "/"
}

// Serve answers on the listener until the context ends. Then it cuts every
// connection, ends the processes, and returns. Connections come first: by a
// stream that breaks off SDKs know that the sandbox is gone, while an exit code
// would say that the command had ended by itself. Call once.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	stopSudo, err := s.startSudo()
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	ctx, s.rest.giveUp = context.WithCancel(ctx)
	defer s.rest.giveUp()
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(listener) }()
	stopRelay := s.startRelay(ctx, listener.Addr())
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	_ = s.http.Close()
	s.rest.end() // a stopped process would not see the signal to end
	s.restoring.end()
	stopRelay()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.Grace)
	defer cancel()
	var ending sync.WaitGroup
	ending.Go(func() { stopSudo(grace) })
	s.processes.Close(grace)
	ending.Wait()
	s.filesystem.Close()
	s.usage.Close()
	if err == nil {
		err = <-served
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func setClock(t time.Time) error {
	now := unix.NsecToTimespec(t.UnixNano())
	return unix.ClockSettime(unix.CLOCK_REALTIME, &now)
}
