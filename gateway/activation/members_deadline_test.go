package activation

import (
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// A request for a sandbox of an env is answered at its deadline while its claim is still
// writing; the race detector sees what the two share.
func TestDeadlineDuringAClaimOfAnEnv(t *testing.T) {
	w := newWorld(t)
	w.idleOf("a", 1)
	var writing atomic.Bool
	answered, written := make(chan struct{}), make(chan struct{})
	g := w.envGatewayOn(faulty(w.c, func(o client.Object, call func() error) error {
		if _, ok := o.(*v1alpha1.Sandbox); ok && writing.CompareAndSwap(false, true) {
			<-answered
			defer close(written)
		}
		return call()
	}))
	err := g.Activate(t.Context(), w.byEnv(kubetest.Name("s"), 2*time.Second))
	if !writing.Load() {
		t.Fatalf("no claim has begun: %v", err)
	}
	close(answered)
	<-written
	if err == nil {
		t.Error("it is activated")
	}
}
