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

	"github.com/sandlane/sandlane/sandboxd/access"
	"github.com/sandlane/sandlane/sandboxd/files"
	"github.com/sandlane/sandlane/sandboxd/filesystem"
	"github.com/sandlane/sandlane/sandboxd/filesystempb"
	"github.com/sandlane/sandlane/sandboxd/identity"
	"github.com/sandlane/sandlane/sandboxd/process"
	"github.com/sandlane/sandlane/sandboxd/processpb"
	"github.com/sandlane/sandlane/sandboxd/trust"
	"github.com/sandlane/sandlane/sandboxd/usage"
	"github.com/sandlane/sandlane/sandboxd/users"
)

const (
	// maxMessage bounds one Connect message.
	maxMessage = 64 << 20
	// headerTimeout bounds the time for a request's header. Bodies and answers may take any
	// time.
	headerTimeout = 30 * time.Second
	// idleTimeout is longer than any proxy keeps an idle connection to sandboxd, so that
	// sandboxd does not close a connection on which a proxy is just sending a request.
	idleTimeout = 11 * time.Minute
	// endMargin is how long after the grace Serve waits for killed processes. Package process
	// needs one second if another process has the output of a killed one open.
	endMargin = 3 * time.Second
)

// errLeftOver: Serve has not waited any longer for what it ends.
var errLeftOver = errors.New("something did not end in time, and is left to the end of the container")

// Server is one agent.
type Server struct {
	options    Options
	caller     *caller
	processes  *process.Service
	filesystem *filesystem.Service
	usage      *usage.Meter
	http       *http.Server
	suspender  *suspender
	restoring  *restoring
	rootFiles  rootFiles
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
		settings.SetClock = options.clock.setTo
	}
	restoring := newRestoring()
	settings.Begins, settings.Restored = restoring.seal, restoring.restored
	trusted := trust.New(options.RunDir)
	imageEnv := commandEnv(options.Environ)
	trusted.Image, trusted.Java = options.image, imageEnv["JAVA_TOOL_OPTIONS"]
	trustEgress := func(authorities []byte) {
		if err := trusted.Add(authorities); err != nil {
			_, _ = fmt.Fprintln(options.Log, "sandboxd: programs do not trust egress:", err)
		}
	}
	settings.Trust = trustEgress
	state := access.New(settings)
	id := identity.New(options.RunDir)
	if err := id.Write(); err != nil {
		_, _ = fmt.Fprintln(options.Log, "sandboxd:", err)
	}
	caller := &caller{State: state, identity: id, imageEnv: imageEnv, workdir: options.Workdir, trust: trusted, trustEgress: trustEgress}
	s := &Server{
		options:    options,
		caller:     caller,
		processes:  process.New(caller, process.Options{Retention: options.Retention, Unread: options.Unread, Connection: connectionOf, Score: options.Score, Log: options.Log}),
		filesystem: filesystem.New(caller),
		usage:      &usage.Meter{Disk: home(caller)},
		restoring:  restoring,
	}
	s.rootFiles = newRootFiles(options, caller, s.processes)
	s.suspender = newSuspender(options.Freezer, s.processes, options.Log)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	s.http = &http.Server{
		Handler:           s.suspender.guard(state.Guard(s.routes(caller))),
		ConnContext:       ownConnection,
		ConnState:         s.suspender.connections.note,
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
	path, entries := filesystempb.NewFilesystemHandler(s.filesystem, limit)
	mux.Handle(path, s.rootFiles.entries(entries))
	contents := files.New(caller, s.rootFiles.opener)
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
	mux.HandleFunc("PUT /init", caller.trustMore)
	mux.HandleFunc("POST /freeze", s.order(caller, "freeze", s.suspender.freeze))
	mux.HandleFunc("POST /unfreeze", s.order(caller, "unfreeze", s.suspender.unfreeze))
	mux.HandleFunc("POST /archive", s.archive(caller))
	mux.HandleFunc("POST /restore", s.restore(caller))
	for _, path := range []string{"/collapse", "/fsfreeze", "/fsthaw", "/upgrade"} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, _ *http.Request) {
			access.Error(w, http.StatusNotImplemented, "sandboxd does not implement "+path+": the machine around it pauses the sandbox")
		})
	}
	return mux
}

// home returns the folder whose disk /metrics reports: the default user's home, where the
// sandbox's data grows. The root file system may be another one, and small.
func home(caller *caller) string {
	if u, err := caller.Named(""); err == nil {
		if _, err := os.Stat(u.Home); err == nil {
			return u.Home
		}
	}
	return "/"
}

// Serve answers on the listener until the context ends. Then it cuts every connection, ends
// the processes, and returns. It cuts the connections first, because a stream that breaks
// off tells SDKs that the sandbox is gone, while an exit code would tell them that the
// command had ended by itself. It returns endMargin after the grace at the latest, whatever
// hangs: the container runs until this process ends. Call it once.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	stopSudo, err := s.startSudo()
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer s.options.clock.follow(s.options.Log)()
	s.rootFiles.allow() // before anything else runs in the sandbox
	ctx, s.suspender.giveUp = context.WithCancel(ctx)
	defer s.suspender.giveUp()
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(listener) }()
	stopRelay := s.startRelay(ctx, listener.Addr())
	stopCommand := s.runStartCommand()
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.end(context.WithoutCancel(ctx), stopRelay, stopSudo, stopCommand)
	}()
	late := time.NewTimer(s.options.Grace + endMargin)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
		return errors.Join(err, errLeftOver)
	}
	if err == nil {
		err = <-served
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// end cuts every connection, and then ends what the server runs.
func (s *Server) end(ctx context.Context, stopRelay func(), stopSudo, stopCommand func(context.Context)) {
	_ = s.http.Close()
	s.suspender.close() // before the signals to end, which a stopped process would not get
	s.restoring.close()
	stopRelay()
	grace, cancel := context.WithTimeout(ctx, s.options.Grace)
	defer cancel()
	var ending sync.WaitGroup
	ending.Go(func() { stopSudo(grace) })
	ending.Go(func() { stopCommand(grace) })
	s.rootFiles.close()
	s.processes.Close(grace)
	ending.Wait()
	s.filesystem.Close()
	s.usage.Close()
}
