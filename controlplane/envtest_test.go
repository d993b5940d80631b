package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/test/kubetest"
)

// realLeases are the leases of a namespace of the test's own on a real API
// server.
func realLeases(t *testing.T) coordinationv1client.LeaseInterface {
	t.Helper()
	return realLeasesIn(t, kubetest.Namespace(t))
}

func realLeasesIn(t *testing.T, namespace string) coordinationv1client.LeaseInterface {
	t.Helper()
	c, err := coordinationv1client.NewForConfig(kubetest.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	return c.Leases(namespace)
}

// startReal runs a Runnable and returns what ends it.
func startReal(t *testing.T, r interface{ Start(context.Context) error }) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Start(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Start returned %v", err)
		}
	})
}

func eventually(t *testing.T, what string, ready func() bool) {
	t.Helper()
	kubetest.Eventually(t, what, func() error {
		if ready() {
			return nil
		}
		return fmt.Errorf("not yet")
	})
}

func shortLease(o *MembershipOptions) {
	o.LeaseDuration, o.RenewEvery = 4*time.Second, 200*time.Millisecond
}

func TestRealLeaseLifecycle(t *testing.T) {
	leases := realLeases(t)
	dir := t.TempDir()
	socket := filepath.Join(dir, "control.sock")
	l, err := ListenUnix(socket)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", info.Mode(), err)
	}
	a := newMember(t, leases, func(o *MembershipOptions) { shortLease(o); o.Address = "unix://" + socket })
	cache := routecache.New(100)
	server, err := NewServer(ServerOptions{
		Listener: l, Member: a.Membership, Fencer: cache,
		Activity: &fakeActivity{report: ActivityReport{Source: "s", Known: true, Entries: []Activity{{"x", "c", time.Second}}}},
		Releaser: &fakeReleaser{}, PauseEnforcer: &fakePauseEnforcer{}, Demand: &fakeDemand{},
	})
	if err != nil {
		t.Fatal(err)
	}
	stopServer := startReal(t, server)
	defer stopServer()
	defer startReal(t, a.Membership)()
	eventually(t, "the gateway serves", a.Held)

	d, err := NewDirectory(DirectoryOptions{Leases: leases, Grace: time.Second, RefreshEvery: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer startReal(t, d)()
	client, err := NewClient(ClientOptions{Directory: d})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Fence(t.Context(), addr1, 1); err != nil {
		t.Fatal(err)
	}
	if got, err := client.GetLastActive(t.Context()); err != nil || got["x"].IsZero() {
		t.Errorf("last active %v, %v", got, err)
	}

	t.Run("renewed", func(t *testing.T) {
		first, err := leases.Get(t.Context(), "gw", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "a renewal", func() bool {
			l, err := leases.Get(t.Context(), "gw", metav1.GetOptions{})
			return err == nil && l.Spec.RenewTime.After(first.Spec.RenewTime.Time)
		})
	})
	t.Run("revoked", func(t *testing.T) {
		gateways, err := d.List(t.Context())
		if err != nil || len(gateways) != 1 {
			t.Fatalf("gateways %v, %v", gateways, err)
		}
		if err := d.Revoke(t.Context(), gateways[0]); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the gateway rejoins", func() bool { return a.Holder() == "a/2" && a.Held() })
		if err := d.Revoke(t.Context(), gateways[0]); err != nil {
			t.Errorf("revoking a holder of the past: %v", err)
		}
		if l, err := leases.Get(t.Context(), "gw", metav1.GetOptions{}); err != nil || holderOf(l) != "a/2" {
			t.Errorf("holder %s, %v", holderOf(l), err)
		}
	})
	t.Run("deleted from outside", func(t *testing.T) {
		if err := leases.Delete(t.Context(), "gw", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the gateway rejoins", func() bool { return a.Holder() == "a/3" && a.Held() })
	})
	t.Run("left", func(t *testing.T) {
		if err := a.Leave(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if _, err := leases.Get(t.Context(), "gw", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the lease after a clean stop: %v", err)
		}
		eventually(t, "the directory forgets it", func() bool {
			gateways, err := d.List(t.Context())
			return err == nil && len(gateways) == 0
		})
		stopServer()
		if _, err := os.Stat(socket); !os.IsNotExist(err) {
			t.Errorf("the socket after a stop: %v", err)
		}
	})
}

// Several processes that start under one name at once fight for the lease with
// real conflicts; one at a time holds it, and each that lost drops its routes.
func TestRealLeaseConflicts(t *testing.T) {
	leases := realLeases(t)
	var members []*member
	for i := range 4 {
		m := newMember(t, leases, func(o *MembershipOptions) { shortLease(o); o.Instance = fmt.Sprintf("i%d", i) })
		members = append(members, m)
		defer startReal(t, m.Membership)()
	}
	eventually(t, "each took the lease over once and lost it", func() bool {
		for _, m := range members {
			if m.epoch.Load() < 2 {
				return false
			}
		}
		return true
	})
	for _, m := range members[1:] {
		if err := m.Leave(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		m.wantHeld(t, false, "left")
	}
	members[0].Reached()
	eventually(t, "the last one holds the lease", func() bool {
		l, err := leases.Get(t.Context(), "gw", metav1.GetOptions{})
		return err == nil && holderOf(l) == members[0].Holder() && members[0].Held()
	})
}

func TestRealLeaseExpires(t *testing.T) {
	leases := realLeases(t)
	dead := newMember(t, leases, shortLease)
	stop := startReal(t, dead.Membership)
	eventually(t, "the gateway serves", dead.Held)
	stop()
	d, err := NewDirectory(DirectoryOptions{Leases: leases, Grace: time.Second, RefreshEvery: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer startReal(t, d)()
	client, err := NewClient(ClientOptions{Directory: d, CallTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Fence(t.Context(), addr1, 1); err == nil {
		t.Fatal("a dead gateway acknowledged")
	}
	eventually(t, "the fence is settled", func() bool { return client.Fence(t.Context(), addr1, 1) == nil })
	if dead.Held() {
		t.Error("the controller counted the lease as over before the gateway did")
	}
	eventually(t, "the lease is deleted", func() bool {
		if err := client.Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := leases.Get(t.Context(), "gw", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}
