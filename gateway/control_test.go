package gateway

import (
	"context"
	"crypto/x509"
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/test/certs"
	"github.com/sandlane/sandlane/test/kubetest"
)

// A gateway on an address of its pod is found by its lease and hears the
// controller; to another gateway it is one that does not answer.
func TestControlPlaneBetweenPods(t *testing.T) {
	c, ns := kubetest.Client(t), kubetest.Namespace(t)
	seed(t, kubetest.Client(t), ns)
	dir, err := os.MkdirTemp("", "gw")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ca := certs.New(t)
	files := func(identity, peer string, usage x509.ExtKeyUsage) controlplane.TLSFiles {
		cert, key := ca.Issue(t, certs.Leaf{Names: []string{identity}, Usage: usage})
		paths := certs.Write(t, cert, key, ca.PEM())
		return controlplane.TLSFiles{Cert: paths[0], Key: paths[1], CA: paths[2], Peer: peer}
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Options{
			Config: kubetest.Config(t), Name: "tcp", RunDir: dir, SystemNamespace: ns, ControlAddress: "[127.0.0.1]:0",
			ControlTLS: files(controlplane.GatewayIdentity, controlplane.ControllerIdentity, x509.ExtKeyUsageServerAuth),
		})
	}()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	kubetest.Eventually(t, "the gateway's lease", func() error {
		var lease coordinationv1.Lease
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "tcp"}, &lease); err != nil {
			return err
		}
		at, err := netip.ParseAddrPort(lease.Annotations[v1alpha1.AnnotationGatewayAddress])
		if err != nil || at.Port() == 0 {
			t.Fatalf("the lease says %v: %v", lease.Annotations, err)
		}
		return nil
	})
	for identity, heard := range map[string]bool{controlplane.ControllerIdentity: true, controlplane.GatewayIdentity: false} {
		caller := calling(t, ns, files(identity, controlplane.GatewayIdentity, x509.ExtKeyUsageClientAuth))
		var unanswered *controlplane.UnansweredError
		switch err := caller.Fence(t.Context(), netip.MustParseAddr("198.18.0.9"), 1); {
		case heard && err != nil:
			t.Errorf("%s is not heard: %v", identity, err)
		case !heard && !errors.As(err, &unanswered):
			t.Errorf("%s is heard: %v", identity, err)
		}
	}
}

// calling is a controller's client with these files.
func calling(t *testing.T, ns string, files controlplane.TLSFiles) *controlplane.Client {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(kubetest.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	directory, err := controlplane.NewDirectory(controlplane.DirectoryOptions{Leases: clientset.CoordinationV1().Leases(ns)})
	if err != nil {
		t.Fatal(err)
	}
	credentials, err := controlplane.LoadTLS(files)
	if err != nil {
		t.Fatal(err)
	}
	caller, err := controlplane.NewClient(controlplane.ClientOptions{Directory: directory, TLS: credentials, CallTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(caller.Close)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- credentials.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return caller
}
