package byname

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/egress/keys"
	"github.com/sandlane/sandlane/test/certs"
	"github.com/sandlane/sandlane/test/kubetest"
)

var internetAddr = netip.MustParseAddr("127.0.62.1")

// world is an installation of two egress processes, and the internet.
type world struct {
	t         *testing.T
	api       client.WithWatch
	namespace string
	processes []*process
	public    *keys.Public
	trust     *x509.CertPool
	judge     *judge
	// fencer asks the processes, as the controller does.
	fencer *controlplane.Client

	connections, claims atomic.Int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	bin := os.Getenv("SANDLANE_BIN")
	if bin == "" {
		t.Skip("SANDLANE_BIN names no binary with failpoints: hack/test.sh does")
	}
	w := &world{t: t, api: kubetest.Client(t), namespace: kubetest.Namespace(t), trust: x509.NewCertPool(), judge: newJudge(t)}
	authority := certs.New(t)
	w.internet(authority)
	dir := t.TempDir()
	files := map[string][]byte{"kubeconfig": kubetest.KubeConfig(t), "internet.pem": authority.PEM()}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	resolver := w.nameServer()
	block := internetAddr.String() + "/32"
	for i := range 2 {
		p := &process{t: t, bin: bin, dir: filepath.Join(dir, fmt.Sprint("egress-", i)), addr: netip.AddrFrom4([4]byte{127, 0, 61, byte(i + 1)})}
		p.args = []string{
			"egress", "--name", fmt.Sprint("egress-", i), "--run-dir", p.dir, "--address", p.addr.String(), "--kubeconfig", filepath.Join(dir, "kubeconfig"),
			"--system-namespace", w.namespace, "--resolver", resolver, "--upstream-ca", filepath.Join(dir, "internet.pem"),
			"--open", ruledHost + "=" + block + "," + plainHost + "=" + block, "--metrics-address", netip.AddrPortFrom(p.addr, 9102).String(), "--record-share", "0",
		}
		if err := os.MkdirAll(filepath.Join(p.dir, "points", "egress"), 0o700); err != nil {
			t.Fatal(err)
		}
		w.processes = append(w.processes, p)
		p.start()
		t.Cleanup(p.kill)
	}
	for _, p := range w.processes {
		p.ready()
	}
	var err error
	if w.public, err = keys.ReadPublic(t.Context(), w.api, w.namespace); err != nil {
		t.Fatal(err)
	}
	w.trust.AppendCertsFromPEM(w.public.Authority)
	w.trust.AddCert(authority.Cert)
	w.control()
	return w
}

// control makes what fences, as the controller has it.
func (w *world) control() {
	w.t.Helper()
	clientset, err := kubernetes.NewForConfig(kubetest.Config(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	directory, err := controlplane.NewDirectory(controlplane.DirectoryOptions{
		Kind: controlplane.Egress, Leases: clientset.CoordinationV1().Leases(w.namespace), Grace: 2 * time.Second, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if w.fencer, err = controlplane.NewClient(controlplane.ClientOptions{Directory: directory, Log: slog.New(slog.DiscardHandler)}); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- directory.Start(ctx) }()
	w.t.Cleanup(func() {
		w.fencer.Close()
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("the directory of egress processes: %v", err)
		}
	})
}

// internet serves both hosts, and judges.
func (w *world) internet(authority *certs.Authority) {
	w.t.Helper()
	pair, err := tls.X509KeyPair(authority.Issue(w.t, certs.Leaf{Names: []string{ruledHost, plainHost}, Usage: x509.ExtKeyUsageServerAuth}))
	if err != nil {
		w.t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(w.t.Context(), "tcp4", netip.AddrPortFrom(internetAddr, 443).String())
	if err != nil {
		w.t.Fatal(err)
	}
	server := &http.Server{
		Handler: w.judge, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}, ReadHeaderTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0), // of handshakes that a fault broke off
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ServeTLS(l, "", "")
	}()
	w.t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
}

// nameServer leads every name to the internet, and returns its address and port.
func (w *world) nameServer() string {
	w.t.Helper()
	c, err := (&net.ListenConfig{}).ListenPacket(w.t.Context(), "udp4", netip.AddrPortFrom(internetAddr, 0).String())
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 1500)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(b[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			answer := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}, Questions: m.Questions}
			if q.Type == dnsmessage.TypeA {
				answer.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 60}, Body: &dnsmessage.AResource{A: internetAddr.As4()},
				}}
			}
			if text, err := answer.Pack(); err == nil {
				_, _ = c.WriteTo(text, from)
			}
		}
	}()
	w.t.Cleanup(func() {
		_ = c.Close()
		<-done
	})
	return c.LocalAddr().String()
}

// process is one egress process. One goroutine at a time uses it.
type process struct {
	t    *testing.T
	bin  string
	dir  string
	addr netip.Addr
	args []string
	cmd  *exec.Cmd
}

func (p *process) start() {
	p.t.Helper()
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	p.cmd = exec.Command(p.bin, p.args...) //nolint:noctx // its end is kill's
	p.cmd.Env = append(os.Environ(), "SANDLANE_FAILPOINTS="+filepath.Join(p.dir, "points"))
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func (p *process) signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Errorf("signal an egress process: %v\n%s", err, p.log())
	}
}

// ready waits until the process serves.
func (p *process) ready() {
	p.t.Helper()
	c := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	kubetest.Eventually(p.t, "an egress process that serves", func() error {
		request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+netip.AddrPortFrom(p.addr, 9102).String()+"/readyz", nil)
		if err != nil {
			return err
		}
		answer, err := c.Do(request)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, p.log())
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s\n%s", answer.Status, p.log())
		}
		return nil
	})
}

// late makes what the process watches late by d; 0 is as soon as it comes.
func (p *process) late(d time.Duration) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, "points", "egress", "watch"), []byte("delay "+d.String()), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// log is the end of the process's log.
func (p *process) log() string {
	text, _ := os.ReadFile(filepath.Join(p.dir, "log"))
	lines := strings.Split(string(text), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
