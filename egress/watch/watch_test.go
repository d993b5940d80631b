package watch

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/egress/claims"
)

// told writes down what the table is told.
type told struct{ calls []string }

func (t *told) See(p claims.Pod) {
	whose := "nobody"
	if p.Claim != nil {
		whose = fmt.Sprint(p.Claim.SandboxID, "/", p.Claim.ClaimID)
		for _, host := range []string{"api.example", "other.example"} {
			if p.Claim.Policy.Decide(host).Allowed {
				whose += " " + host
			}
		}
	}
	t.calls = append(t.calls, fmt.Sprintf("%s at %s: %s", p.UID, p.Addr, whose))
}
func (t *told) Gone(uid string)            { t.calls = append(t.calls, uid+" gone") }
func (t *told) PodsSeen(rv uint64)         { t.calls = append(t.calls, fmt.Sprint("seen ", rv)) }
func (*told) Drop(_ context.Context) error { return nil }

// take returns what the table was told since the last call.
func (t *told) take() string {
	defer func() { t.calls = nil }()
	return strings.Join(t.calls, ", ")
}

func pod(uid, rv string, phase v1alpha1.PodPhase, sandbox, claim string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: uid, UID: types.UID(uid), ResourceVersion: rv,
		Labels: map[string]string{v1alpha1.LabelPhase: string(phase)}, Annotations: map[string]string{v1alpha1.AnnotationAddress: "10.0.0.1"},
	}}
	p.Status.PodIP = "10.0.0.1"
	if sandbox != "" {
		p.Labels[v1alpha1.LabelSandboxID], p.Annotations[v1alpha1.AnnotationClaim] = sandbox, claim
	}
	return p
}

func sandbox(id, claim, pod string, allow ...string) *v1alpha1.Sandbox {
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: id, UID: types.UID(id)}}
	s.Spec.Namespace, s.Spec.Egress = "team", &v1alpha1.SandboxEgress{DenyAll: true, AllowNames: allow}
	s.Spec.Binding = &v1alpha1.Binding{ClaimID: claim, PodName: pod, PodUID: pod}
	return s
}

// A pod's claim counts once the sandbox that names the pod too was seen, with the sandbox's
// rules; it is over with either.
func TestClaimsOfBothWatches(t *testing.T) {
	table := &told{}
	s := newState(table, nil, slog.New(slog.DiscardHandler))
	pods, sandboxes := podStore{s}, sandboxStore{s}
	ended := sandbox("s1", "c1", "p1", "api.example")
	ended.Spec.End = &v1alpha1.End{}
	plain := sandbox("s1", "c1", "p1")
	plain.Spec.Egress = nil
	broken := sandbox("s1", "c1", "p1", "no name")
	for _, step := range []struct {
		what string
		do   func() error
		want string
	}{
		{"a pod that warms", func() error { return pods.Add(pod("p1", "1", v1alpha1.PodWarming, "", "")) }, "p1 gone"},
		{"idle", func() error { return pods.Update(pod("p1", "2", v1alpha1.PodIdle, "", "")) }, "p1 at 10.0.0.1: nobody"},
		{"claimed", func() error { return pods.Update(pod("p1", "3", v1alpha1.PodRunning, "s1", "c1")) }, "p1 at 10.0.0.1: nobody"},
		{"a sandbox of another claim", func() error { return sandboxes.Add(sandbox("s1", "c0", "p1", "api.example")) }, "p1 at 10.0.0.1: nobody"},
		{"of another pod", func() error { return sandboxes.Update(sandbox("s1", "c1", "p0", "api.example")) }, "p1 at 10.0.0.1: nobody"},
		{"its sandbox", func() error { return sandboxes.Update(sandbox("s1", "c1", "p1", "api.example")) }, "p1 at 10.0.0.1: s1/c1 api.example"},
		{"nothing new", func() error { return sandboxes.Update(sandbox("s1", "c1", "p1", "api.example")) }, ""},
		{"other rules", func() error { return sandboxes.Update(sandbox("s1", "c1", "p1", "other.example")) }, "p1 at 10.0.0.1: s1/c1 other.example"},
		{"rules that cannot be read", func() error { return sandboxes.Update(broken) }, "p1 at 10.0.0.1: s1/c1"},
		{"no rules", func() error { return sandboxes.Update(plain) }, "p1 at 10.0.0.1: s1/c1 api.example other.example"},
		{"a bookmark", func() error { pods.UpdateResourceVersion("9"); return nil }, "seen 9"},
		{"its end", func() error { return sandboxes.Update(ended) }, "p1 at 10.0.0.1: nobody"},
		{"the pod stops", func() error { return pods.Update(pod("p1", "10", v1alpha1.PodStopping, "s1", "c1")) }, "p1 gone"},
		{"a list without it", func() error { return pods.Replace([]any{pod("p2", "11", v1alpha1.PodIdle, "", "")}, "12") }, "p1 gone, p2 at 10.0.0.1: nobody, seen 12"},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got := table.take(); got != step.want {
			t.Errorf("%s: %q, want %q", step.what, got, step.want)
		}
	}
}

// An address that the pod did not turn idle with, or of IPv6, is none.
func TestAddresses(t *testing.T) {
	table := &told{}
	s := newState(table, nil, slog.New(slog.DiscardHandler))
	changed, six := pod("p1", "1", v1alpha1.PodIdle, "", ""), pod("p2", "1", v1alpha1.PodIdle, "", "")
	changed.Status.PodIP = "10.0.0.2"
	six.Status.PodIP, six.Annotations[v1alpha1.AnnotationAddress] = "fd00::1", "fd00::1"
	for _, p := range []*corev1.Pod{changed, six} {
		if err := (podStore{s}).Add(p); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"p1 gone", "p2 gone"}; !slices.Equal(table.calls, want) {
		t.Errorf("%v", table.calls)
	}
}
