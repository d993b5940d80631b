package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"

	"github.com/sandlane/sandlane/test/kubetest"
)

// kubelet reaches the node's kubelet API as kube-apiserver does.
func (n *testNode) kubelet(t testing.TB) (*rest.Config, string) {
	t.Helper()
	creds, err := EnsureKubeletCredentials(n.opts.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	node, err := n.client.CoreV1().Nodes().Get(t.Context(), n.opts.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	base := fmt.Sprintf("https://%s:%d", node.Status.Addresses[0].Address, node.Status.DaemonEndpoints.KubeletEndpoint.Port)
	return &rest.Config{Host: base, TLSClientConfig: rest.TLSClientConfig{
		CertFile: creds.ClientCert, KeyFile: creds.ClientKey, CAFile: creds.ServerCert,
	}}, base
}

func TestLogs(t *testing.T) {
	n := startNode(t, IsolationFull)
	n.create(t, shellPod("a", "echo one; echo two >&2; echo three; while ! test -e /tmp/go; do sleep 0.05; done; echo four; sleep 1000"))
	n.await(t, "a", "is ready", isReady)
	cfg, base := n.kubelet(t)
	transport, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer transport.CloseIdleConnections()
	logs := func(ctx context.Context, query string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, "GET", base+"/containerLogs/"+n.ns+"/a/main?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		return transport.Do(req)
	}
	read := func(query string) string {
		res, err := logs(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		raw, _ := io.ReadAll(res.Body)
		return string(raw)
	}
	kubetest.Eventually(t, "three lines", func() error {
		if got := read(""); got != "one\ntwo\nthree\n" {
			return errors.New(got)
		}
		return nil
	})
	if got := read("tailLines=1"); got != "three\n" {
		t.Errorf("tail: %q", got)
	}
	if got := read("limitBytes=5"); got != "one\nt" {
		t.Errorf("limit: %q", got)
	}
	stamp, rest, _ := strings.Cut(read("timestamps=true&tailLines=1"), " ")
	if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil || rest != "three\n" {
		t.Errorf("timestamps: %q %q", stamp, rest)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	res, err := logs(ctx, "follow=true&tailLines=1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if code, out := n.exec(t, "a", "touch", "/tmp/go"); code != 0 {
		t.Fatal(out)
	}
	got := make([]byte, len("three\nfour\n"))
	if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != "three\nfour\n" {
		t.Errorf("follow: %q, %v", got, err)
	}
	if res, err := logs(ctx, "previous=true"); err != nil || res.StatusCode != 404 {
		t.Errorf("previous: %v, %v", res.Status, err)
	} else {
		_ = res.Body.Close()
	}
}

func TestExec(t *testing.T) {
	n := startNode(t, IsolationFull)
	n.create(t, echoPod("a"))
	n.await(t, "a", "is ready", isReady)
	cfg, base := n.kubelet(t)
	run := func(tty bool, stdin string, args ...string) (string, string, error) {
		u, err := url.Parse(base + "/exec/" + n.ns + "/a/main")
		if err != nil {
			t.Fatal(err)
		}
		q := url.Values{"command": args, "output": {"1"}, "input": {"1"}}
		if tty {
			q.Set("tty", "1")
		} else {
			q.Set("error", "1")
		}
		u.RawQuery = q.Encode()
		e, err := remotecommand.NewSPDYExecutor(cfg, "POST", u)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var out, errOut bytes.Buffer
		o := remotecommand.StreamOptions{Stdin: strings.NewReader(stdin), Stdout: &out, Tty: tty}
		if !tty {
			o.Stderr = &errOut
		}
		err = e.StreamWithContext(ctx, o)
		return out.String(), errOut.String(), err
	}
	out, errOut, err := run(false, "hello", "sh", "-c", "cat; echo oops >&2; exit 3")
	var exit utilexec.CodeExitError
	if out != "hello" || errOut != "oops\n" || !errors.As(err, &exit) || exit.Code != 3 {
		t.Errorf("out %q, err %q, %v", out, errOut, err)
	}
	if out, _, err := run(true, "", "sh", "-c", "test -t 0 && tty"); err != nil || !strings.HasPrefix(out, "/dev/pts/") {
		t.Errorf("terminal: %q, %v", out, err)
	}
	if _, _, err := run(false, "", "no-such-program"); err == nil || !strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("missing program: %v", err)
	}

	anonymous := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	if res, err := anonymous.Get(base + "/pods"); err == nil {
		_ = res.Body.Close()
		t.Errorf("without the API server's certificate: %s", res.Status)
	}
}
