package sandboxdclient

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
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

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/activation"
)

// store takes the parts of a restore, and answers an archive.
type store struct {
	public ed25519.PublicKey
	t      *testing.T

	data    bytes.Buffer
	damaged bool                                // a part's signature may not fit
	restore func(offset int64, part []byte) int // the answer, if not 0
	archive func(w http.ResponseWriter)
	// arguments are those of the last /archive; it is written before the answer, which its reader has awaited.
	arguments string
}

func (s *store) serve(addr string) {
	s.t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", addr, v1alpha1.SandboxdPort))
	if err != nil {
		s.t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /init", nonce("n"))
	mux.HandleFunc("POST /{name}", s.command)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	s.t.Cleanup(func() { _ = srv.Close(); <-done })
}

func (s *store) command(w http.ResponseWriter, r *http.Request) {
	part, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller has left
	}
	arguments := r.Header.Get("Sandlane-Arguments")
	signature, err := base64.StdEncoding.DecodeString(r.Header.Get("Sandlane-Init-Signature"))
	message := fmt.Sprintf("sandlane %s 1\n\"pod-1\"\n\"n\"\n\"i0\"\n%q\n%x\n", r.PathValue("name"), arguments, sha256.Sum256(part))
	if err != nil || !ed25519.Verify(s.public, []byte(message), signature) {
		w.WriteHeader(http.StatusUnauthorized)
		if !s.damaged {
			s.t.Errorf("%s: the signature does not fit %s", r.URL, arguments)
		}
		return
	}
	var order struct {
		ID        string
		Offset    int64
		Last      bool
		EmptyDirs []string
	}
	if err := json.Unmarshal([]byte(arguments), &order); err != nil || fmt.Sprint(order.EmptyDirs) != "[/data]" {
		s.t.Errorf("arguments %s: %v", arguments, err)
	}
	if r.PathValue("name") == "archive" {
		s.arguments = arguments
		s.archive(w)
		return
	}
	if s.restore != nil {
		if status := s.restore(order.Offset, part); status != 0 {
			w.WriteHeader(status)
			return
		}
	}
	if order.Offset == int64(s.data.Len()) {
		s.data.Write(part)
	}
	w.WriteHeader(http.StatusAccepted)
	if order.Last {
		s.restore = func(int64, []byte) int { return http.StatusOK }
	}
}

func storeAt(t *testing.T, addr string) (*store, *Agent, *corev1.Pod) {
	public, private, _ := ed25519.GenerateKey(nil)
	s := &store{public: public, t: t}
	s.serve(addr)
	_, pod := podAt(addr)
	c := &pod.Spec.Containers[0]
	pod.Spec.Volumes = []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}, {Name: "c"}}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "d", MountPath: "/data"}, {Name: "c", MountPath: "/claim"}, {Name: "d", MountPath: "/ro", ReadOnly: true}}
	return s, New(fakeTokens{}, signer{private: private}, func() bool { return true }), pod
}

// Restore sends an archive in signed parts over as many calls as it takes, and sends a part
// again if sandboxd's answer was lost.
func TestRestore(t *testing.T) {
	s, a, pod := storeAt(t, "127.83.3.1")
	data := bytes.Repeat([]byte("0123456789"), chunkSize/4)
	calls, lost := 0, map[int64]bool{}
	r := &Restoring{ID: "r", Archive: &kept{data: data, first: 1000}}
	var ctx context.Context
	var leave context.CancelFunc
	s.restore = func(offset int64, part []byte) int {
		if lost[offset] {
			return 0
		}
		lost[offset] = true
		if offset == int64(s.data.Len()) {
			s.data.Write(part) // sandboxd has the part, but its answer is lost
		}
		leave()
		return http.StatusServiceUnavailable
	}
	for calls < 20 {
		calls++
		ctx, leave = context.WithCancel(t.Context())
		err := a.Restore(ctx, "i0", pod, r)
		leave()
		if err == nil {
			break
		}
		if activation.VerdictOf(err) == activation.EndSandbox {
			t.Fatal(err)
		}
	}
	if calls != 5 || !bytes.Equal(s.data.Bytes(), data) {
		t.Errorf("%d calls, %d of %d bytes", calls, s.data.Len(), len(data))
	}
}

// An answer that would not change ends a restore. So does an archive that cannot be read,
// or is damaged, of which no part is accepted as the last one.
func TestRestoreFailures(t *testing.T) {
	s, a, pod := storeAt(t, "127.83.3.2")
	for status, unusable := range map[int]bool{409: true, 422: true, 401: true, 501: true, 503: false, 500: false} {
		s.restore = func(int64, []byte) int { return status }
		err := a.Restore(t.Context(), "i0", pod, &Restoring{ID: "r", Archive: &kept{data: []byte("x")}})
		if err == nil || (activation.VerdictOf(err) == activation.EndSandbox) != unusable || errors.Is(err, errDamaged) {
			t.Errorf("status %d: %v", status, err)
		}
	}
	cause := errors.New("a bad disk")
	s.restore = nil
	for name, tc := range map[string]struct {
		kept *kept
		want error
	}{
		"cannot be read": {&kept{data: []byte("xy"), first: 1, err: cause}, cause},
		"damaged":        {&kept{data: []byte("xy"), first: 1, damaged: true}, errDamaged},
	} {
		s.data.Reset()
		s.damaged = tc.kept.damaged
		err := a.Restore(t.Context(), "i0", pod, &Restoring{ID: "r", Archive: tc.kept})
		if !errors.Is(err, tc.want) || activation.VerdictOf(err) != activation.EndSandbox || s.data.String() != "x" {
			t.Errorf("%s: %v, sandboxd has %q", name, err, s.data.String())
		}
	}
}

// kept is an archive of parts of chunkSize, but for the first one.
type kept struct {
	data    []byte
	first   int   // length of the first part; 0 is chunkSize
	err     error // of reading any other part
	damaged bool  // any other part is
	read    bool  // the first one was read
}

func (k *kept) Part(buf []byte) (n int, digest [sha256.Size]byte, last bool, err error) {
	if k.read && k.err != nil {
		return 0, digest, false, k.err
	}
	if !k.read && k.first > 0 {
		buf = buf[:k.first]
	}
	n = copy(buf, k.data)
	k.data = k.data[n:]
	digest = sha256.Sum256(buf[:n])
	if k.read && k.damaged {
		buf[0]++
	}
	k.read = true
	return n, digest, len(k.data) == 0, nil
}

// Reading an archive that breaks off fails, and a refused Archive returns the error for the
// status.
func TestArchive(t *testing.T) {
	s, a, pod := storeAt(t, "127.83.3.3")
	for _, whole := range []bool{true, false} {
		s.archive = func(w http.ResponseWriter) {
			w.Header().Set("Sandlane-Mark", "7")
			_, _ = w.Write(bytes.Repeat([]byte("x"), 100_000))
			if !whole {
				panic(http.ErrAbortHandler)
			}
		}
		body, mark, err := a.ArchiveSince(t.Context(), "i0", pod, 0)
		if err != nil {
			if whole {
				t.Fatal(err)
			}
			continue
		}
		data, err := io.ReadAll(body)
		if (err == nil) != whole || whole && len(data) != 100_000 || mark != 7 {
			t.Errorf("whole %v: %d bytes, the mark %d, %v", whole, len(data), mark, err)
		}
		if err := body.Close(); err != nil {
			t.Error(err)
		}
	}
	for status, want := range map[int]error{
		412: ErrNotInitialised, 409: ErrBusy, 423: ErrBusy, 501: ErrNoArchive, 401: ErrNoArchive, 500: ErrRefused,
	} {
		s.archive = func(w http.ResponseWriter) { w.WriteHeader(status) }
		if _, err := a.Archive(t.Context(), "i0", pod); !errors.Is(err, want) {
			t.Errorf("status %d: %v, want %v", status, err, want)
		}
	}
	// A hibernation's is of a frozen sandbox alone, a snapshot's of any.
	s.archive = func(http.ResponseWriter) {}
	for want, call := range map[string]func(context.Context, string, *corev1.Pod) (io.ReadCloser, error){
		`{"emptyDirs":["/data"],"since":0}`: a.Archive,
		`{"emptyDirs":["/data"],"since":7}`: func(ctx context.Context, id string, pod *corev1.Pod) (io.ReadCloser, error) {
			body, _, err := a.ArchiveSince(ctx, id, pod, 7)
			return body, err
		},
		`{"emptyDirs":["/data"],"environment":true,"frozen":true}`: a.ArchiveAll,
	} {
		body, err := call(t.Context(), "i0", pod)
		if err != nil {
			t.Fatal(err)
		}
		if s.arguments != want {
			t.Errorf("the arguments are %s, want %s", s.arguments, want)
		}
		_ = body.Close()
	}
	pod.Spec.HostPID = true
	if _, err := a.Archive(t.Context(), "i0", pod); !errors.Is(err, ErrNoArchive) {
		t.Errorf("a pod with the machine's processes: %v", err)
	}
}
