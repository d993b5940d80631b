package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// A pool that keeps no pods serves each first request, with one pod each and no other,
// notes when it was asked, and says at the end that none waits.
func TestPoolWithoutReplicasServes(t *testing.T) {
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "pool", 0)
	const n = 12
	var requests []stack.Request
	for i := range n {
		requests = append(requests, stack.Request{ID: fmt.Sprintf("zero-%d", i), Pool: ns + "/pool"})
	}
	began := time.Now()
	for _, r := range burst(t, requests) {
		if r.err != nil || r.answer.Status != 200 {
			t.Errorf("%s: %d %q, %v", r.id, r.answer.Status, r.answer.Body, r.err)
		}
	}
	t.Logf("%d requests in %v", n, time.Since(began).Round(time.Millisecond))
	pool := &v1alpha1.SandboxPool{}
	shared.Eventually(t, time.Minute, "the pool to settle", func() (bool, string) {
		if err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "pool"}, pool); err != nil {
			return false, err.Error()
		}
		s, note := pool.Status, pool.Annotations[v1alpha1.AnnotationScaleUpPending]
		asked := pool.Annotations[v1alpha1.AnnotationLastCreate]
		return s.Running == n && s.Idle+s.Warming == 0 && s.WaitingClaims == 0 && note == "" && asked != "",
			fmt.Sprintf("%d running, %d idle, %d warming, %d wait, note %q, last asked %q", s.Running, s.Idle, s.Warming, s.WaitingClaims, note, asked)
	})
	at, err := time.Parse(time.RFC3339Nano, pool.Annotations[v1alpha1.AnnotationLastCreate])
	if err != nil || time.Since(at) > 5*time.Minute {
		t.Errorf("last asked for at %q: %v", pool.Annotations[v1alpha1.AnnotationLastCreate], err)
	}
}

// Each claim that waits has a pod made for it, and one alone; how soon is said.
func TestWaitingClaimHasAPodMade(t *testing.T) {
	t.Parallel()
	const n = 12
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "pool", 0)
	pods, err := shared.Client.Watch(t.Context(), &corev1.PodList{}, client.InNamespace(ns))
	if err != nil {
		t.Fatal(err)
	}
	defer pods.Stop()
	var took []time.Duration
	for i := range n {
		answered := make(chan stack.Answer, 1)
		began := time.Now()
		go func() {
			a, _ := shared.Try(t.Context(), nil, stack.Request{ID: fmt.Sprintf("%s-%d", ns, i), Pool: ns + "/pool"})
			answered <- a
		}()
		for made := false; !made; {
			select {
			case e := <-pods.ResultChan():
				made = e.Type == watch.Added
			case <-time.After(time.Minute):
				t.Fatal("no pod is made")
			}
		}
		took = append(took, time.Since(began))
		if a := <-answered; a.Echo == nil {
			t.Fatalf("%d: %v", i, a)
		}
	}
	slices.Sort(took)
	t.Logf("from a request to the order of its pod: median %v, 95th percentile %v, slowest %v",
		took[n/2].Round(time.Millisecond), took[(n*95-1)/100].Round(time.Millisecond), took[n-1].Round(time.Millisecond))
	if made := len(shared.PodsOf(t, ns)); made != n {
		t.Errorf("%d pods for %d claims", made, n)
	}
}
