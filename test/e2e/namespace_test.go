package e2e

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// A namespace goes away while 50 sandboxes run in it and the gateway does not
// answer: no finalizer waits for a fence. The addresses do, until it answers.
func TestNamespaceDeletedInUse(t *testing.T) {
	const n = 50
	ns := shared.PoolNamespace(t, "in-use-")
	t.Cleanup(func() { _ = shared.Client.Delete(context.Background(), ns) })
	shared.Pool(t, ns.Name, "pool", n, stack.WithMaxPods(n))
	var requests []stack.Request
	for i := range n {
		requests = append(requests, stack.Request{ID: fmt.Sprint("in-use-", i), Pool: ns.Name + "/pool"})
	}
	for _, r := range burst(t, requests) {
		if r.err != nil || r.answer.Echo == nil {
			t.Fatalf("%s: %v, %v", r.id, r.answer, r.err)
		}
	}
	if err := shared.Reload(); err != nil {
		t.Fatal(err)
	}
	gateway := shared.Up.Gateways[0].Pids["gateway"]
	if err := syscall.Kill(gateway, syscall.SIGSTOP); err != nil {
		t.Fatalf("stopping the gateway: %v", err)
	}
	resume := func() { _ = syscall.Kill(gateway, syscall.SIGCONT) }
	defer resume()
	if err := shared.Client.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	shared.Eventually(t, 90*time.Second, "the namespace to go", func() (bool, string) {
		err := shared.Client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns)
		return apierrors.IsNotFound(err), fmt.Sprintf("%d pods left, %+v", len(shared.PodsOf(t, ns.Name)), ns.Status.Conditions)
	})
	t.Logf("gone after %v, with the gateway stopped", time.Since(began).Round(100*time.Millisecond))
	for _, r := range requests {
		if sb, _ := shared.Sandbox(t, r.ID); sb.Status.FencedAt != nil {
			t.Errorf("sandbox %s was fenced by a gateway that is stopped", r.ID)
		}
	}
	resume()
	shared.Eventually(t, time.Minute, "all sandboxes to have ended, fenced, with a record", func() (bool, string) {
		done := 0
		for _, r := range requests {
			if sb, _ := shared.Sandbox(t, r.ID); sb.Status.Phase == v1alpha1.SandboxEnded && sb.Status.FencedAt != nil && sb.Status.Stop != nil {
				done++
			}
		}
		return done == n, fmt.Sprint(done)
	})
	if a := shared.Do(t, nil, requests[0]); a.Status != 502 {
		t.Errorf("a request to a sandbox whose namespace is gone: %v", a)
	}
}
