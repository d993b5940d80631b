package autoscaler

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
)

// polled is what gateways say of every pool.
type polled struct {
	waiting int
	known   bool
}

func (p polled) Of(types.NamespacedName) controlplane.Demand {
	d := controlplane.Demand{Waiting: map[uint64]time.Time{}, Known: p.known}
	for i := range p.waiting {
		d.Waiting[uint64(i)] = t0 //nolint:gosec // not negative
	}
	return d
}

// A claim that is served already, which the last poll could not know, is not counted as
// one that waits beside its pod; and nothing shrinks while polls and pool differ in
// whether any does.
func TestServedClaimIsCountedOnce(t *testing.T) {
	for _, c := range []struct {
		name           string
		polls          polled
		noted, running int32
		waiting        int
		known          bool
	}{
		{"none waits", polled{0, true}, 0, 3, 0, true},
		{"all of them wait", polled{5, true}, 5, 0, 5, true},
		{"two of them are served", polled{5, true}, 3, 2, 3, true},
		{"all of them are served", polled{5, true}, 0, 5, 0, false},
		{"the pool has not heard of the newest", polled{5, true}, 2, 0, 2, true},
		{"the pool has not heard of any", polled{5, true}, 0, 0, 0, false},
		{"the pool has not heard that none waits", polled{0, true}, 5, 5, 0, false},
		{"a gateway is silent", polled{0, false}, 0, 0, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			pool := &v1alpha1.SandboxPool{Status: v1alpha1.SandboxPoolStatus{WaitingClaims: c.noted, Running: c.running}}
			r := &Reconciler{Demand: c.polls}
			if s := r.sized(&v1alpha1.EnvMember{Name: "m"}, pool); s.Waiting != c.waiting || s.known != c.known || s.Claimed != int(c.running) {
				t.Errorf("%d wait, %d are claimed, known is %v; want %d, %d, %v", s.Waiting, s.Claimed, s.known, c.waiting, c.running, c.known)
			}
		})
	}
}

// A pool of another cluster's entry is not this autoscaler's to size.
func TestPoolOfAnotherCluster(t *testing.T) {
	env := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Name: "e", UID: "env"}}
	owned := []metav1.OwnerReference{*metav1.NewControllerRef(env, v1alpha1.GroupVersion.WithKind("SandboxEnv"))}
	r := &Reconciler{LocalClusterID: "local"}
	for cluster, want := range map[string]bool{"": true, "local": true, "other": false} {
		pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owned, Annotations: map[string]string{v1alpha1.AnnotationCluster: cluster}}}
		if got := r.isOurs(pool, env); got != want {
			t.Errorf("a pool of cluster %q is ours: %v", cluster, got)
		}
	}
	if r.isOurs(&v1alpha1.SandboxPool{}, env) {
		t.Error("a pool of no env is ours")
	}
}
