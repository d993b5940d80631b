package sandboxdclient

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// freezer answers orders with a status.
func freezer(t *testing.T, addr string, status int) (asked *[]*http.Request) {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", addr, v1alpha1.SandboxdPort))
	if err != nil {
		t.Fatal(err)
	}
	asked = &[]*http.Request{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /init", nonce("n"))
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r)
		w.WriteHeader(status)
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	return asked
}

// An order is signed for its kind, pod, process, sandbox and number. The message is
// written out again here, and in sandboxd's tests.
func TestOrdersAreSigned(t *testing.T) {
	const addr = "127.83.2.1"
	public, private, _ := ed25519.GenerateKey(nil)
	a := New(fakeTokens{}, signer{private: private}, func() bool { return true })
	asked := freezer(t, addr, http.StatusNoContent)
	_, pod := podAt(addr)
	for order, give := range map[string]func() error{
		"freeze":   func() error { return a.Freeze(t.Context(), "i0", pod, 7) },
		"unfreeze": func() error { return a.Unfreeze(t.Context(), "i0", pod, 7) },
	} {
		*asked = nil
		if err := give(); err != nil || len(*asked) != 1 {
			t.Fatalf("%s: %v, %d requests", order, err, len(*asked))
		}
		h := (*asked)[0].Header
		signature, err := base64.StdEncoding.DecodeString(h.Get("Sandlane-Init-Signature"))
		message := "sandlane " + order + " 1\n\"pod-1\"\n\"n\"\n\"i0\"\n7\n"
		if err != nil || !ed25519.Verify(public, []byte(message), signature) || (*asked)[0].URL.Path != "/"+order ||
			h.Get("Sandlane-Pause-Order") != "7" || h.Get("Sandlane-Sandbox-Id") != "i0" {
			t.Errorf("%s: %s %v", order, (*asked)[0].URL, h)
		}
	}
}

// What the agent returns for each answer of sandboxd.
func TestOrderAnswers(t *testing.T) {
	_, private, _ := ed25519.GenerateKey(nil)
	a := New(fakeTokens{}, signer{private: private}, func() bool { return true })
	for i, c := range []struct {
		status int
		want   error
	}{
		{http.StatusNotImplemented, ErrNoFreezer}, {http.StatusUnauthorized, ErrNoFreezer},
		{http.StatusForbidden, ErrNoFreezer},
		{http.StatusConflict, writes.ErrStale}, {http.StatusPreconditionFailed, ErrNotInitialised},
		{http.StatusInternalServerError, ErrRefused}, {http.StatusServiceUnavailable, ErrRefused},
	} {
		addr := fmt.Sprintf("127.83.3.%d", i+1)
		freezer(t, addr, c.status)
		_, pod := podAt(addr)
		for order, give := range map[string]func(context.Context, string, *corev1.Pod, int64) error{"freeze": a.Freeze, "unfreeze": a.Unfreeze, "probe": a.Probe} {
			if err := give(t.Context(), "i0", pod, 7); !errors.Is(err, c.want) {
				t.Errorf("%s: %d: %v", order, c.status, err)
			}
		}
	}
	const before = "127.83.3.100"
	freezer(t, before, http.StatusAccepted)
	_, pod := podAt(before)
	if err := a.Unfreeze(t.Context(), "i0", pod, 7); err != nil {
		t.Errorf("before /init: unfreeze: %v", err)
	}
	if err := a.Probe(t.Context(), "i0", pod, 7); !errors.Is(err, ErrNotInitialised) {
		t.Errorf("before /init: probe: %v", err)
	}
	delete(pod.Labels, v1alpha1.LabelInitKey)
	if err := a.Probe(t.Context(), "i0", pod, 7); !errors.Is(err, ErrNoFreezer) {
		t.Errorf("without a key: %v", err)
	}
	_, pod = podAt("127.83.3.1")
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{})
	if err := a.Freeze(t.Context(), "i0", pod, 7); !errors.Is(err, ErrNoFreezer) {
		t.Errorf("of two containers: %v", err)
	}
}

// A gateway's own trouble is told apart from a sandboxd that does not answer, and both from
// what sandboxd says.
func TestOrderThatSandboxdDoesNotAnswer(t *testing.T) {
	_, private, _ := ed25519.GenerateKey(nil)
	const addr, silent, broken = "127.83.4.1", "127.83.4.2", "127.83.4.3"
	freezer(t, addr, http.StatusNoContent)
	serve(t, broken, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	for what, c := range map[string]struct {
		addr   string
		signer signer
		leased bool
		want   error // nil: an error that says nothing about sandboxd
		key    string
	}{
		"the key cannot be read": {addr, signer{err: errors.New("the API server is away")}, true, nil, "k"},
		"without a lease":        {addr, signer{private: private}, false, nil, "k"},
		"the key is not there":   {addr, signer{private: private}, true, nil, "another"},
		"nothing listens":        {silent, signer{private: private}, true, ErrNoAnswer, "k"},
		"it has no nonce to say": {broken, signer{private: private}, true, ErrRefused, "k"},
	} {
		_, pod := podAt(c.addr)
		pod.Labels[v1alpha1.LabelInitKey] = c.key
		err := New(fakeTokens{}, c.signer, func() bool { return c.leased }).Freeze(t.Context(), "i0", pod, 7)
		if err == nil {
			t.Errorf("%s: it is frozen", what)
		}
		for _, one := range []error{ErrNoFreezer, writes.ErrStale, ErrNotInitialised, ErrBusy, ErrRefused, ErrNoAnswer} {
			if errors.Is(err, one) != errors.Is(c.want, one) {
				t.Errorf("%s: %v, want %v", what, err, c.want)
			}
		}
	}
}
