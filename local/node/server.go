package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"go.opencensus.io/stats/view"
	utilexec "k8s.io/client-go/util/exec"

	"github.com/sandlane/sandlane/local/node/containerlog"
	"github.com/sandlane/sandlane/local/node/process"
	"github.com/sandlane/sandlane/local/node/status"
)

// The library's HTTP package starts a worker for statistics that are not read.
func init() { view.Stop() }

// kubeletAPI is the server that kube-apiserver asks for logs and exec.
type kubeletAPI struct {
	listener net.Listener
	tls      *tls.Config
}

func listenKubelet(stateDir string) (*kubeletAPI, error) {
	creds, err := EnsureKubeletCredentials(stateDir)
	if err != nil {
		return nil, err
	}
	config, err := creds.tlsConfig()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(status.HostIP, "0"))
	if err != nil {
		return nil, fmt.Errorf("listen for the kubelet API: %w", err)
	}
	return &kubeletAPI{l, config}, nil
}

func (k *kubeletAPI) port() int { return k.listener.Addr().(*net.TCPAddr).Port }

// serve answers until ctx is done; streams that are open then are cut.
func (k *kubeletAPI) serve(ctx context.Context, v *provider) error {
	server := &http.Server{
		Handler: api.PodHandler(api.PodHandlerConfig{
			RunInContainer:        v.runInContainer,
			GetContainerLogs:      v.containerLogs,
			GetPods:               v.GetPods,
			GetPodsFromKubernetes: v.GetPods,
			StreamIdleTimeout:     4 * time.Hour,
			StreamCreationTimeout: 30 * time.Second,
		}, false),
		TLSConfig:         k.tls,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          log.New(io.Discard, "", 0), // port scans and cut streams
	}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	if err := server.ServeTLS(k.listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the kubelet API: %w", err)
	}
	return nil
}

// containerLogs answers `kubectl logs`.
func (v *provider) containerLogs(ctx context.Context, namespace, name, container string, o api.ContainerLogOpts) (io.ReadCloser, error) {
	p, c, err := v.findContainer(namespace, name, container)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	file, proc := c.log, c.proc
	if o.Previous {
		file, proc = c.oldLog, nil
	}
	p.mu.Unlock()
	if file == "" {
		return nil, errdefs.NotFoundf("container %q has no such log yet", container)
	}
	opts := containerlog.Options{Tail: o.Tail, Limit: o.LimitBytes, Timestamps: o.Timestamps, Follow: o.Follow && proc != nil, Since: o.SinceTime}
	if o.SinceSeconds > 0 {
		opts.Since = time.Now().Add(-time.Duration(o.SinceSeconds) * time.Second)
	}
	var running <-chan struct{}
	if proc != nil {
		running = proc.Exited
	}
	r, err := containerlog.Read(ctx, file, opts, running)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errdefs.NotFoundf("container %q has no such log any more", container)
	}
	return r, err
}

// runInContainer answers `kubectl exec`. The exit code reaches kubectl only as
// a CodeExitError.
func (v *provider) runInContainer(ctx context.Context, namespace, name, container string, cmd []string, attach api.AttachIO) error {
	p, c, err := v.findContainer(namespace, name, container)
	if err != nil {
		return err
	}
	p.mu.Lock()
	proc := c.proc
	p.mu.Unlock()
	if proc == nil {
		return errdefs.NotFoundf("container %q is not running", container)
	}
	s := process.Streams{TTY: attach.TTY(), Resize: attach.Resize()}
	if in := attach.Stdin(); in != nil {
		s.Stdin = in
	}
	if out := attach.Stdout(); out != nil {
		s.Stdout = out
	}
	if out := attach.Stderr(); out != nil {
		s.Stderr = out
	}
	code, err := proc.Exec(ctx, cmd, s)
	if err == nil && code != 0 {
		err = utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: code}
	}
	return err
}
