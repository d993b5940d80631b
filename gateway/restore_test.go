package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

// A real etcd is restored from a backup while a gateway and a controller's cache watch:
// their watches are silent then. The gateway drops what it knew from before, sees what
// is written after, and takes fences by the versions of now; the cache's process ends.
func TestARestoredEtcd(t *testing.T) {
	p := kubetest.LaunchRestorable(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "restored"}}
	if err := p.Client.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	w := newWorldOn(t, p.Client, ns.Name)
	g := w.gatewayWith(p.Config, func(o *Options) { o.RenewEvery, o.LeaseDuration = time.Second, time.Minute })
	p.Backup(t)
	knows := func(id string, want routing.State) {
		t.Helper()
		kubetest.Eventually(t, fmt.Sprintf("%s to be %v", id, want), func() error {
			if got := g.index.Resolve(id).State; got != want || !g.member.Held() {
				return fmt.Errorf("it is %v, lease held %v", got, g.member.Held())
			}
			return nil
		})
	}
	lost := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "lost"}, Spec: v1alpha1.SandboxSpec{Namespace: w.ns, Pool: "base"}}
	if err := w.c.Create(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	for i := range 200 { // versions that are to be gone back from
		lost.Annotations = map[string]string{"n": fmt.Sprint(i)}
		if err := w.c.Update(t.Context(), lost); err != nil {
			t.Fatal(err)
		}
	}
	last := w.pod("base", "10.0.0.9", nil) // the pod watch comes so far
	knows("lost", routing.NoPod)
	kubetest.Eventually(t, "the pod to be seen", func() error {
		rv := strconv.FormatUint(g.index.PodRV(), 10)
		if order, err := resourceversion.CompareResourceVersion(rv, last.ResourceVersion); err != nil || order < 0 {
			return fmt.Errorf("at %s of %s", rv, last.ResourceVersion)
		}
		return nil
	})
	before := g.index.PodRV()
	route := func(id string, rv uint64) *routecache.Route {
		return &routecache.Route{
			SandboxID: id, ClaimID: "c", PodUID: "p", Addr: netip.MustParseAddr("10.0.0.9"), PodRV: rv, Use: g.usage.ClaimUse(id, "c"),
		}
	}
	if !g.cache.Put(g.cache.Begin("lost"), route("lost", before)) {
		t.Fatal("no route to begin with")
	}
	ended := guard(t, p)
	g.usage.ClaimEnded("back", "c") // as if it had run when the backup was made
	g.own.Add("c")

	p.Restore(t)
	knows("lost", routing.Unknown)
	if g.cache.Get("lost") != nil {
		t.Error("a route of before is kept")
	}
	if use := g.usage.ClaimUse("back", "c"); g.usage.Existing("back", "c") != use {
		t.Error("the use of a claim that runs again is not kept")
	}
	if a := g.own.Correct(routing.Answer{State: routing.Running, ClaimID: "c"}); a.State != routing.Running {
		t.Errorf("a claim that runs again is %v", a.State)
	}
	now := g.index.PodRV()
	if now >= before {
		t.Fatalf("the pods are at %d, and were at %d", now, before)
	}
	made := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "made"}, Spec: v1alpha1.SandboxSpec{Namespace: w.ns, Pool: "base"}}
	if err := w.c.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	knows("made", routing.NoPod)
	fence := routecache.Fence{Addr: netip.MustParseAddr("10.0.0.9"), RV: now + 1_000_000}
	if err := g.cache.Fence(t.Context(), []routecache.Fence{fence}); err != nil {
		t.Fatal(err)
	}
	if g.cache.Put(g.cache.Begin("made"), route("made", now)) {
		t.Error("a fence that the pod watch has not come to does not refuse")
	}
	select {
	case err := <-ended:
		if !errors.Is(err, kubeclient.ErrRewound) {
			t.Errorf("the guard of a cache returned %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the guard of a cache that is ahead goes on")
	}
}

// guard runs a cache as a controller's, filled, with the guard that ends its process.
func guard(t *testing.T, p *kubetest.Restorable) (ended chan error) {
	t.Helper()
	c, err := cache.New(kubeclient.Patient(p.Config), cache.Options{Scheme: kubetest.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); _ = c.Start(t.Context()) }()
	t.Cleanup(func() { <-stopped }) // the test's context is over by then
	if _, err := c.GetInformer(t.Context(), &v1alpha1.Sandbox{}); err != nil {
		t.Fatal(err)
	}
	g := &kubeclient.RewindGuard{Caches: c, Live: p.Client, Kinds: []kubeclient.Kind{{Object: &v1alpha1.Sandbox{}, List: &v1alpha1.SandboxList{}}}}
	ended = make(chan error, 1)
	go func() { ended <- g.Start(t.Context()) }()
	return ended
}
