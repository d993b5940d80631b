package controlplane

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sandlane/sandlane/controlplane/lastcreate"
	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/test/bubble"
)

// What a gateway tells the controller of a pool: ages, and what waits, by hashes.
func TestPoolDemandOfAGateway(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		set, creates := schedule.NewSet(fake.NewClientBuilder().Build()), lastcreate.NewTracker(nil, 0)
		defer set.Shutdown()
		d := LocalDemand{set, creates}
		if got := d.PoolDemand(); len(got) != 0 {
			t.Errorf("a gateway that nobody asked says %v", got)
		}
		set.PoolChanged("ns", "waits", true)
		s, _ := set.Get("ns", "waits")
		s.Enqueue(&schedule.ClaimRequest{SandboxID: "a", Deadline: time.Now().Add(time.Hour), ResultCh: make(chan schedule.ClaimResult, 1)})
		creates.Bump(types.NamespacedName{Namespace: "ns", Name: "asked"})
		time.Sleep(time.Minute)
		got := map[string]PoolDemand{}
		for _, p := range d.PoolDemand() {
			got[p.Pool] = p
		}
		w, asked := got["waits"], got["asked"]
		if len(got) != 2 || !slices.Equal(w.Waiting, []uint64{schedule.HashID("a")}) || w.Oldest != time.Minute || w.Created != -1 {
			t.Errorf("the pool where one waits: %+v of %v", w, got)
		}
		if len(asked.Waiting) != 0 || asked.Created != time.Minute || asked.Namespace != "ns" {
			t.Errorf("the pool that was asked: %+v", asked)
		}
		creates.Bump(types.NamespacedName{Namespace: "ns", Name: "waits"})
		for _, p := range d.PoolDemand() {
			if p.Pool == "waits" && (p.Created != 0 || len(p.Waiting) != 1) {
				t.Errorf("both of one pool: %+v", p)
			}
		}
	})
}
