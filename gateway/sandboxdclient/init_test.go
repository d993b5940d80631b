package sandboxdclient

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/activation"
)

type fakeTokens struct{}

func (fakeTokens) Envd(id string, uid types.UID) string { return id + "/" + string(uid) }

// signer has one key, "k".
type signer struct {
	private ed25519.PrivateKey
	err     error
}

func (s signer) Sign(_ context.Context, id string, message []byte) ([]byte, bool, error) {
	if s.err != nil || id != "k" {
		return nil, false, s.err
	}
	return ed25519.Sign(s.private, message), true, nil
}

// taken is what the fake sandboxd received.
type taken struct {
	connections map[string]bool
	header      http.Header
	body        []byte
}

// serve starts a fake sandboxd on an address of its own.
func serve(t *testing.T, addr string, challenge http.HandlerFunc) *taken {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", addr, v1alpha1.SandboxdPort))
	if err != nil {
		t.Fatal(err)
	}
	got := &taken{connections: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /init", func(w http.ResponseWriter, r *http.Request) {
		got.connections[r.RemoteAddr] = true
		challenge(w, r)
	})
	mux.HandleFunc("POST /init", func(w http.ResponseWriter, r *http.Request) {
		got.connections[r.RemoteAddr] = true
		got.header = r.Header
		got.body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusNoContent)
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	return got
}

func podAt(addr string) (*v1alpha1.Sandbox, *corev1.Pod) {
	s, pod := &v1alpha1.Sandbox{}, &corev1.Pod{}
	s.Name, s.UID, s.Spec.Pool = "i0", "uid", "base"
	pod.Name, pod.UID = "p", "pod-1"
	pod.Labels = map[string]string{v1alpha1.LabelInitKey: "k"}
	pod.Annotations = map[string]string{v1alpha1.AnnotationAddress: addr}
	pod.Status.PodIP, pod.Status.PodIPs = addr, []corev1.PodIP{{IP: addr}}
	pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: v1alpha1.SandboxdPort}}}}
	return s, pod
}

func nonce(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"nonce": text})
	}
}

// A call of /init is signed with the pod's key, for this pod, this process of its sandboxd,
// this sandbox and this body, and uses one connection.
func TestInitIsSigned(t *testing.T) {
	const addr = "127.83.0.1"
	public, private, _ := ed25519.GenerateKey(nil)
	a := New(fakeTokens{}, signer{private: private}, func() bool { return true })
	// The nonce comes from the pod, which may try to make it look like other parts of the message.
	got := serve(t, addr, nonce("n\"\n\"pod-2"))
	s, pod := podAt(addr)
	if err := a.Init(t.Context(), s, pod, map[string]string{"A": "1"}); err != nil {
		t.Fatal(err)
	}
	signature, err := base64.StdEncoding.DecodeString(got.header.Get("Sandlane-Init-Signature"))
	message := initMessage("pod-1", "n\"\n\"pod-2", "i0", "base", got.body)
	if err != nil || !ed25519.Verify(public, message, signature) {
		t.Errorf("the signature is %q, %v", got.header, err)
	}
	if len(got.connections) != 1 {
		t.Errorf("it took %d connections", len(got.connections))
	}
	var body struct{ AccessToken string }
	if err := json.Unmarshal(got.body, &body); err != nil || body.AccessToken != "i0/uid" {
		t.Errorf("the body is %s, %v", got.body, err)
	}
}

// Programs of a sandbox with rules trust egress's authority, and those of others do not. While
// it cannot be read no sandbox with rules begins without it.
func TestInitHasTheAuthority(t *testing.T) {
	const addr = "127.83.0.9"
	_, private, _ := ed25519.GenerateKey(nil)
	a := New(fakeTokens{}, signer{private: private}, func() bool { return true })
	got := serve(t, addr, nonce("n"))
	s, pod := podAt(addr)
	for _, c := range []struct {
		egress *v1alpha1.SandboxEgress
		want   string
	}{
		{nil, ""},
		{&v1alpha1.SandboxEgress{DenyAll: true}, ""},
		{&v1alpha1.SandboxEgress{Rules: []v1alpha1.EgressRule{{Host: "a.example"}}}, "egress's"},
	} {
		a.Authority = func(context.Context) ([]byte, error) { return []byte("egress's"), nil }
		s.Spec.Egress = c.egress
		if err := a.Init(t.Context(), s, pod, nil); err != nil {
			t.Fatal(err)
		}
		var body struct{ CABundle string }
		if err := json.Unmarshal(got.body, &body); err != nil || body.CABundle != c.want {
			t.Errorf("%+v: %s, %v", c.egress, got.body, err)
		}
		a.Authority = func(context.Context) ([]byte, error) { return nil, errors.New("away") }
		if err := a.Init(t.Context(), s, pod, nil); (err != nil) != (c.want != "") || activation.VerdictOf(err) == activation.EndSandbox {
			t.Errorf("%+v, and the authority is away: %v", c.egress, err)
		}
	}
}

// The message is written out again here; sandboxd's tests have the same text.
func TestInitMessage(t *testing.T) {
	const want = "sandlane init 1\n\"pod-1\"\n\"n\\n\"\n\"i0\"\n\"base\"\n" +
		"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n"
	if got := string(initMessage("pod-1", "n\n", "i0", "base", []byte("abc"))); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A lasting reason for which /init cannot be signed is a verdict of activation.EndSandbox; one that
// may pass is not.
func TestInitThatCannotBeSigned(t *testing.T) {
	away := errors.New("away")
	_, private, _ := ed25519.GenerateKey(nil)
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for i, c := range []struct {
		name      string
		key       string
		err       error
		challenge http.HandlerFunc
		unusable  bool
	}{
		{"no key", "", nil, nonce("n"), true},
		{"a key that is gone", "old", nil, nonce("n"), true},
		{"the keys cannot be read", "k", away, nonce("n"), false},
		{"another program", "k", nil, status(http.StatusUnauthorized), true},
		{"no nonce", "k", nil, nonce(""), true},
		{"broken for a moment", "k", nil, status(http.StatusServiceUnavailable), false},
	} {
		addr := fmt.Sprintf("127.83.1.%d", i+1)
		got := serve(t, addr, c.challenge)
		s, pod := podAt(addr)
		pod.Labels[v1alpha1.LabelInitKey] = c.key
		err := New(fakeTokens{}, signer{private, c.err}, func() bool { return true }).Init(t.Context(), s, pod, nil)
		if err == nil || (activation.VerdictOf(err) == activation.EndSandbox) != c.unusable || c.err != nil && !errors.Is(err, c.err) || got.body != nil {
			t.Errorf("%s: %v; sandboxd was sent %q", c.name, err, got.body)
		}
	}
}

// After a restore only the process of sandboxd that restored the files is initialised: the
// container's next process does not have them.
func TestInitRestored(t *testing.T) {
	const addr = "127.83.4.1"
	_, private, _ := ed25519.GenerateKey(nil)
	a := New(fakeTokens{}, signer{private: private}, func() bool { return true })
	process, restored := "n1", "r"
	got := serve(t, addr, func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"nonce": process, "restored": restored})
	})
	s, pod := podAt(addr)
	r := &Restoring{ID: "r"}
	if err := a.InitRestored(t.Context(), s, pod, nil, r); activation.VerdictOf(err) != activation.EndSandbox || got.header != nil {
		t.Errorf("before the restore: %v, sent %v", err, got.header)
	}
	if err := a.Restore(t.Context(), "i0", pod, r); err != nil { // another gateway has
		t.Fatal(err)
	}
	process, restored = "n2", ""
	if err := a.InitRestored(t.Context(), s, pod, nil, r); activation.VerdictOf(err) != activation.EndSandbox || got.header != nil {
		t.Errorf("after a restart: %v, sent %v", err, got.header)
	}
	process, restored = "n1", "r"
	if err := a.InitRestored(t.Context(), s, pod, nil, r); err != nil || got.header == nil {
		t.Errorf("the process that has them: %v", err)
	}
}
