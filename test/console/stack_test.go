package console

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/local/authority"
	"github.com/sandlane/sandlane/test/stack"
)

// Five faults are put into a whole installation: a pool without stock for a request that
// waits, an image that does not exist, a gateway that is cut off, a store without room, and a
// certificate near its end. The page that `up` serves shows each within a minute, and
// `explain` explains it.
func TestFiveFaultsOfAStack(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("it needs root: each sandbox gets namespaces of its own")
	}
	state := t.TempDir()
	smallStore(t, state)
	s := startStack(t, state, "--tls", "--gateways", "2", "--pool-size", "1", "--base-pool-size", "0")
	ns := s.Namespace(t)
	c := clientOf(t, s)
	create := func(pool *v1alpha1.SandboxPool) {
		t.Helper()
		if err := s.Client.Create(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
	}
	create(stack.EchoPool(ns, "none", 1, stack.WithMaxPods(1)))
	create(stack.EchoPool(ns, "full", 1, stack.WithFreezer("head -c 8000000 /dev/urandom >/home/user/big")))
	s.WaitIdle(t, ns, "none", 1)
	s.WaitIdle(t, ns, "full", 1)
	if a := s.Do(t, c, stack.Request{ID: "first", Pool: ns + "/none"}); a.Echo == nil {
		t.Fatalf("the first request: %v", a)
	}
	rest := restOf(t, s, c, ns)
	a := rest("POST", "/sandboxes", `{"templateID":"full","timeout":900}`)
	var made struct{ SandboxID string }
	if err := json.Unmarshal(a.Body, &made); err != nil || a.Status != http.StatusCreated {
		t.Fatalf("create: %v, %v", a, err)
	}

	b := open(t, s.Up.ConsoleURL)
	seen := func(put time.Time, texts ...string) {
		t.Helper()
		b.seesWithin(time.Minute-time.Since(put), texts...)
		t.Logf("%q after %v", texts[0], time.Since(put).Round(time.Second))
	}
	put := time.Now()
	create(stack.EchoPool(ns, "image", 1, func(p *v1alpha1.SandboxPool) { mainOf(p).Image = "local/unknown" }))
	seen(put, ns+"/image: ErrImagePull")

	s.Eventually(t, patience, "a snapshot to find no room", func() (bool, string) { // its large file may not be there yet
		put = time.Now()
		a := rest("POST", "/sandboxes/"+made.SandboxID+"/snapshots", "{}")
		return a.Status == http.StatusInsufficientStorage, a.String()
	})
	seen(put, "the checkpoint store is full")

	put = time.Now()
	stopGateway(t, s.Up.Gateways[1])
	wait(t, func(ctx context.Context) { _, _ = s.Try(ctx, c, stack.Request{ID: "second", Pool: ns + "/none"}) })
	endCertificateSoon(t, s)
	seen(put, ns+"/none: MaxPods", "1 request waits")
	seen(put, "the certificate that clients see ends in 1 day")
	seen(put, "gateway-2: its lease was last renewed")

	explained := explain(t, s)
	for _, want := range []string{
		ns + "/none: MaxPods", "raise spec.maxPods (now 1)", ns + "/image: ErrImagePull", "correct the image",
		"gateway-2: its lease was last renewed", "the checkpoint store is full", "ends in 1 day", "renew the TLS Secret",
	} {
		if !strings.Contains(explained, want) {
			t.Errorf("explain lacks %q:\n%s", want, explained)
		}
	}
	if of := explain(t, s, "second"); !strings.Contains(of, "its first request waits for a pod") || !strings.Contains(of, "raise spec.maxPods") {
		t.Errorf("explain second:\n%s", of)
	}
	if _, token, _ := strings.Cut(s.Up.ConsoleURL, "#"); strings.Contains(b.text()+explained+s.Logs(1<<20), token) || strings.Contains(b.text()+explained, s.Up.APIKey) {
		t.Error("the console's token or the API key is shown")
	}
}

func mainOf(p *v1alpha1.SandboxPool) *corev1.Container {
	return &p.Spec.Template.Template.Spec.Containers[0]
}

// startStack starts a whole installation for a test.
func startStack(t *testing.T, state string, args ...string) *stack.Stack {
	t.Helper()
	if os.Getenv(stack.BinaryEnv) == "" { // this folder is a module of its own
		bin, err := filepath.Abs("../../bin/sandlane")
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv(stack.BinaryEnv, bin)
	}
	s, err := stack.Start(t.Context(), state, args...)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Logs(40))
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// clientOf trusts the stack's certificate.
func clientOf(t *testing.T, s *stack.Stack) *http.Client {
	t.Helper()
	pem, err := os.ReadFile(s.Up.CAFile)
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(pem) {
		t.Fatalf("%s: %v", s.Up.CAFile, err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// stopGateway cuts a gateway off: it does not run until the test ends.
func stopGateway(t *testing.T, g stack.Gateway) {
	t.Helper()
	pid := g.Pids["gateway"]
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("stop gateway %s: %v", g.Name, err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
}

// wait has a request wait until the test ends.
func wait(t *testing.T, send func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var sent sync.WaitGroup
	sent.Go(func() {
		for ctx.Err() == nil { // an answer that there is no pod is followed by another try
			send(ctx)
		}
	})
	t.Cleanup(func() { cancel(); sent.Wait() })
}

// smallStore has the checkpoint store of a stack that is not started yet room for a megabyte.
func smallStore(t *testing.T, state string) {
	t.Helper()
	dir := filepath.Join(state, "checkpoints")
	if err := errors.Join(os.Mkdir(dir, 0o700), syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m")); err != nil {
		t.Fatalf("make a small checkpoint store: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// restOf asks the REST API with a key for a namespace.
func restOf(t *testing.T, s *stack.Stack, c *http.Client, namespace string) func(method, path, body string) stack.Answer {
	t.Helper()
	key, err := s.Key(t.Context(), namespace)
	if err != nil {
		t.Fatal(err)
	}
	return func(method, path, body string) stack.Answer {
		t.Helper()
		a, err := s.Up.Gateways[0].REST(t.Context(), c, key, method, path, body)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
}

// endCertificateSoon has the Envoys show a certificate that ends in less than two days.
func endCertificateSoon(t *testing.T, s *stack.Stack) {
	t.Helper()
	a, fresh, err := authority.Ensure(filepath.Dir(s.Up.CAFile), filepath.Base(filepath.Dir(s.Up.CAFile)), time.Now())
	if err != nil || fresh {
		t.Fatalf("read the stack's authority: %v, fresh: %v", err, fresh)
	}
	cert, key, err := a.Certificate(time.Now().Add(36*time.Hour - authority.CertificateLife))
	if err != nil {
		t.Fatal(err)
	}
	pki := filepath.Join(s.State, "cluster", "pki")
	for name, pem := range map[string][]byte{"gateway.key": key, "gateway.crt": cert} {
		// Envoy looks again when a file is moved here.
		part := filepath.Join(s.State, name)
		if err := errors.Join(os.WriteFile(part, pem, 0o600), os.Rename(part, filepath.Join(pki, name))); err != nil {
			t.Fatal(err)
		}
	}
}

func explain(t *testing.T, s *stack.Stack, args ...string) string {
	t.Helper()
	out, err := s.Run(t.Context(), append([]string{"explain"}, args...)...)
	if err != nil {
		t.Fatalf("explain: %v\n%s", err, out)
	}
	return out
}
