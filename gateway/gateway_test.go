package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/test/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// A gateway becomes ready, and when it is told to stop it marks its lease as left,
// which says that no route is left, and takes its sockets away. No controller was told its
// last uses, so the lease stays for the next one to see.
func TestStartAndStop(t *testing.T) {
	c, ns := kubetest.Client(t), kubetest.Namespace(t)
	seed(t, kubetest.Client(t), ns)
	dir, err := os.MkdirTemp("", "gw") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	address := freeAddress(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Options{Config: kubetest.Config(t), Name: "one", RunDir: dir, SystemNamespace: ns, MetricsAddress: address})
	}()
	httpClient := &http.Client{Timeout: 5 * time.Second}
	defer httpClient.CloseIdleConnections()
	kubetest.Eventually(t, "the gateway to be ready", func() error {
		select {
		case err := <-done:
			t.Fatalf("the gateway ended: %v", err)
		default:
		}
		res, err := httpClient.Get("http://" + address + "/readyz")
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("readyz says %d", res.StatusCode)
		}
		return nil
	})
	var lease coordinationv1.Lease
	key := client.ObjectKey{Namespace: ns, Name: "one"}
	if err := c.Get(t.Context(), key, &lease); err != nil {
		t.Fatalf("a ready gateway has a lease: %v", err)
	}
	stop()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("the gateway ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the gateway did not stop")
	}
	if err := c.Get(t.Context(), key, &lease); err != nil || !left(&lease) {
		t.Errorf("the lease after a clean stop: %v, %v", err, lease.Spec)
	}
	for _, socket := range []string{ExtProcSocket, ControlSocket, APISocket} {
		if _, err := os.Stat(filepath.Join(dir, socket)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", socket, err)
		}
	}
}

// left reports whether a lease is marked as left.
func left(l *coordinationv1.Lease) bool {
	return strings.HasPrefix(*l.Spec.HolderIdentity, string(controlplane.MarkLeft)+":")
}

// The lease is marked as left only when Envoy is gone. A gateway whose part has failed, or
// whose Envoy does not quit, leaves an Envoy with streams, which are in use.
func TestLeaseStaysWithEnvoy(t *testing.T) {
	failPart := func(g *gateway, _ context.CancelFunc) { _ = g.metrics.Close() }
	stop := func(_ *gateway, stop context.CancelFunc) { stop() }
	for name, tc := range map[string]struct {
		envoy, stays, fails, left bool
		end                       func(*gateway, context.CancelFunc)
	}{
		"a part fails beside an Envoy": {envoy: true, fails: true, end: failPart},
		"a part fails without one":     {fails: true, left: true, end: failPart},
		"Envoy does not quit":          {envoy: true, stays: true, end: stop},
		"Envoy quits":                  {envoy: true, left: true, end: stop},
	} {
		t.Run(name, func(t *testing.T) {
			c, ns := kubetest.Client(t), kubetest.Namespace(t)
			seed(t, kubetest.Client(t), ns)
			d, dir := testDrain(t, nil, time.Minute)
			if tc.envoy {
				startAdmin(t, dir).stays = tc.stays
			}
			o := Options{Config: kubetest.Config(t), Name: "one", RunDir: dir, SystemNamespace: ns, MetricsAddress: freeAddress(t), Log: d.log, DrainGrace: time.Second}
			o.Complete()
			g, err := assemble(o)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- g.run(ctx) }()
			kubetest.Eventually(t, "the lease to be held", func() error {
				if !g.member.Held() {
					return errors.New("not held")
				}
				return nil
			})
			tc.end(g, cancel)
			if err := <-done; (err != nil) != tc.fails {
				t.Errorf("the gateway ended with %v", err)
			}
			if g.member.Held() {
				t.Error("it may still route")
			}
			var lease coordinationv1.Lease
			err = c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "one"}, &lease)
			if err != nil || left(&lease) != tc.left || !tc.left && *lease.Spec.HolderIdentity != g.member.Holder() {
				t.Errorf("the lease: %v, %v", err, lease.Spec)
			}
		})
	}
}

// A part that cannot start ends the gateway, and with it what had started.
func TestAPartThatFails(t *testing.T) {
	c, ns := kubetest.Client(t), kubetest.Namespace(t)
	seed(t, kubetest.Client(t), ns)
	dir, err := os.MkdirTemp("", "gw")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Mkdir(filepath.Join(dir, ExtProcSocket), 0o700); err != nil {
		t.Fatal(err)
	}
	err = Run(t.Context(), Options{Config: kubetest.Config(t), Name: "two", RunDir: dir, SystemNamespace: ns})
	if err == nil {
		t.Fatal("a gateway without its ExtProc socket runs")
	}
	leases := &coordinationv1.LeaseList{}
	if err := c.List(t.Context(), leases, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	if len(leases.Items) != 0 {
		t.Errorf("leases left: %v", leases.Items)
	}
}

// Options that cannot work are refused before anything is started.
func TestOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"no config":  {Name: "a", RunDir: "/run/x"},
		"no name":    {Config: kubetest.Config(t), RunDir: "/run/x"},
		"bad name":   {Config: kubetest.Config(t), Name: "A b", RunDir: "/run/x"},
		"no run dir": {Config: kubetest.Config(t), Name: "a"},
		"negative":   {Config: kubetest.Config(t), Name: "a", RunDir: "/run/x", CacheSize: -1},
		"plain TCP":  {Config: kubetest.Config(t), Name: "a", RunDir: t.TempDir(), ControlAddress: "127.0.0.1:0"},
	} {
		if err := Run(t.Context(), o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for in, want := range map[string]string{"": "/", "echo": "default/echo", "a/b": "a/b"} {
		if got, err := ParsePool(in); err != nil || got.String() != want {
			t.Errorf("ParsePool(%q) = %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"a/b/c", "A", "/x", "x/", "-"} {
		if got, err := ParsePool(in); err == nil {
			t.Errorf("ParsePool(%q) = %v", in, got)
		}
	}
}
