package chaos

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Five gateways whose controller is stopped for a second in every ten, as may happen on a
// shared machine: all that a mixed run checks must hold, and no slow second may make the
// controller revoke the leases of gateways that answer.
//
// TestSecondsOfAStallingController and TestTenMinutesOfAStallingController are both of
// `make chaos`.
func TestSecondsOfAStallingController(t *testing.T) {
	stalling(t, 40*time.Second, enough{answers: 500, claims: 15, created: 1, faults: 3})
}

func TestTenMinutesOfAStallingController(t *testing.T) {
	stalling(t, 10*time.Minute, enough{
		answers: 20000, claims: 400, idle: 150, ended: 60, killed: 20, deleted: 8, created: 60, returns: 40, faults: 50,
	})
}

// systemNamespace is where `up` keeps the leases of gateways.
const systemNamespace = "sandlane-system"

func stalling(t *testing.T, length time.Duration, least enough) {
	five, r := stackOf(t, 5)
	share(t, five, r)
	out := watchRevocations(t)
	mixed(t, length, [][]string{{stalledC}}, least)
	most, all := out.stop()
	t.Logf("%d leases of gateways were revoked, %d at a time at most", all, most)
	// At most one gateway may lose its lease at a time. A controller that stalls for a second
	// is no reason to revoke any; on a busy machine one may be revoked now and then.
	if stalls := int(length / (stallEvery + stall)); most > 1 || all > 1+stalls/10 {
		t.Errorf("%d leases of gateways that answer were revoked, %d at a time", all, most)
	}
}

// revocations counts the revoked leases of a stack's gateways, by a watch of the leases.
type revocations struct {
	cancel   context.CancelFunc
	watching sync.WaitGroup
	out      map[string]bool
	most     int // at a time
	all      int
}

func watchRevocations(t *testing.T) *revocations {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &revocations{cancel: cancel, out: map[string]bool{}}
	w, err := shared.Client.Watch(ctx, &coordinationv1.LeaseList{}, client.InNamespace(systemNamespace), client.HasLabels{v1alpha1.LabelGateway})
	if err != nil {
		t.Fatal(err)
	}
	r.watching.Go(func() {
		defer w.Stop()
		for e := range w.ResultChan() {
			if ctx.Err() != nil {
				return
			}
			l, ok := e.Object.(*coordinationv1.Lease)
			if !ok || l.Spec.HolderIdentity == nil {
				t.Errorf("the watch of leases shows %v", e)
				return
			}
			revoked := e.Type != watch.Deleted && strings.HasPrefix(*l.Spec.HolderIdentity, "revoked:")
			if revoked && !r.out[l.Name] {
				r.all++
			}
			r.out[l.Name] = revoked
			n := 0
			for _, is := range r.out {
				if is {
					n++
				}
			}
			r.most = max(r.most, n)
		}
		if ctx.Err() == nil {
			t.Error("the watch of leases broke")
		}
	})
	return r
}

// stop returns how many were revoked at a time, and in all.
func (r *revocations) stop() (most, all int) {
	r.cancel()
	r.watching.Wait()
	return r.most, r.all
}
