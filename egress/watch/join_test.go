package watch

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/egress/claims"
	"github.com/sandlane/sandlane/egress/seal"
	"github.com/sandlane/sandlane/test/kubetest"
)

// latest keeps what a table was last told of each pod.
type latest struct {
	mu   sync.Mutex
	pods map[string]claims.Pod
	rv   uint64
}

func (l *latest) See(p claims.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pods[p.UID] = p
}

func (l *latest) Gone(uid string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pods, uid)
}

func (l *latest) PodsSeen(rv uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rv = rv
}

func (l *latest) Drop(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.pods)
	return nil
}

// is returns an error unless the pod was last seen so; nil is gone.
func (l *latest) is(pod *corev1.Pod, right func(*claims.Pod) bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen, known := l.pods[string(pod.UID)]
	if !known && right(nil) || known && right(&seen) {
		return nil
	}
	return fmt.Errorf("known: %v, %+v", known, seen)
}

// After Join the table knows what stood in the API, and it follows what changes: pods with
// egress ByName alone.
func TestJoin(t *testing.T) {
	c, ns := kubetest.Client(t), kubetest.Namespace(t)
	make := func(name string, mode v1alpha1.EgressMode) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: name,
			Labels:      map[string]string{v1alpha1.LabelPool: "pool", v1alpha1.LabelPhase: string(v1alpha1.PodIdle), v1alpha1.LabelEgress: string(mode)},
			Annotations: map[string]string{v1alpha1.AnnotationAddress: "10.1.1.1"},
		}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "local/echo"}}}}
		if mode == "" {
			delete(p.Labels, v1alpha1.LabelEgress)
		}
		must(t, c.Create(t.Context(), p))
		p.Status.PodIP, p.Status.PodIPs = "10.1.1.1", []corev1.PodIP{{IP: "10.1.1.1"}}
		must(t, c.Status().Update(t.Context(), p))
		return p
	}
	pod, plain := make("by-name", v1alpha1.EgressByName), make("plain", "")
	table := &latest{pods: map[string]claims.Pod{}}
	w := New(Options{Client: c, Table: table, Log: slog.New(slog.DiscardHandler), Open: func(seal.Place, []byte) ([]byte, error) { return []byte("{}"), nil }})
	for range 2 { // as after a lease that was lost
		must(t, w.Join(t.Context()))
		must(t, table.is(pod, func(p *claims.Pod) bool { return p != nil && p.Claim == nil && p.Addr.String() == "10.1.1.1" }))
		must(t, table.is(plain, func(p *claims.Pod) bool { return p == nil }))
		if table.rv == 0 {
			t.Error("the watch has come nowhere")
		}
	}
	defer w.Stop()

	// A secret is known when Join returns, and followed.
	secret := &v1alpha1.SandboxSecret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v1alpha1.SecretObject("key")}, Spec: v1alpha1.SandboxSecretSpec{
		Name: "key", Version: 1, Sealed: []byte("sealed"), UpdatedAt: metav1.NowMicro(),
	}}
	must(t, c.Create(t.Context(), secret))
	kubetest.Eventually(t, "the secret", func() error { _, err := w.Reveal(ns, "key"); return err })
	must(t, w.Join(t.Context()))
	if value, err := w.Reveal(ns, "key"); err != nil || value != "{}" {
		t.Errorf("the secret: %q, %v", value, err)
	}

	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: kubetest.Name("s")}, Spec: v1alpha1.SandboxSpec{
		Namespace: ns, Pool: "pool", Egress: &v1alpha1.SandboxEgress{AllowNames: []string{"api.example"}},
		Binding: &v1alpha1.Binding{ClaimID: "c1", PodName: pod.Name, PodUID: string(pod.UID)},
	}}
	if err := c.Create(t.Context(), s); err == nil || !strings.Contains(err.Error(), "allowNames needs denyAll") {
		t.Errorf("names that are allowed, where all are: %v", err)
	}
	s.Spec.Egress.DenyAll = true
	// Bytes whose base64 has + and /, which no expression of the definition may read.
	s.Spec.Egress.Sealed = []byte{0xfb, 0xef, 0xff}
	must(t, c.Create(t.Context(), s))
	pod.Labels[v1alpha1.LabelSandboxID], pod.Annotations[v1alpha1.AnnotationClaim] = s.Name, "c1"
	pod.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodRunning)
	must(t, c.Update(t.Context(), pod))
	allows := func(host string) func(*claims.Pod) bool {
		return func(p *claims.Pod) bool {
			return p != nil && p.Claim != nil && p.Claim.Policy.Decide(host).Allowed && !p.Claim.Policy.Decide("denied.example").Allowed
		}
	}
	kubetest.Eventually(t, "the claim", func() error { return table.is(pod, allows("api.example")) })
	s.Spec.Egress.AllowNames = []string{"other.example"}
	must(t, c.Update(t.Context(), s))
	kubetest.Eventually(t, "the new rules", func() error { return table.is(pod, allows("other.example")) })
	must(t, c.Delete(t.Context(), pod))
	kubetest.Eventually(t, "the pod's end", func() error { return table.is(pod, func(p *claims.Pod) bool { return p == nil }) })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
