package node

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/local/node/network"
	"github.com/sandlane/sandlane/test/kubetest"
)

// A client that waits for a pod whose network goes without a word, neither end nor reset
// of the connection, is told when the node has cleared the pod away. Clients of other
// pods are left alone.
func TestRequestToVanishedPod(t *testing.T) {
	n := startNode(t, IsolationFull)
	n.create(t, echoPod("a"), echoPod("b"))
	a, b := n.await(t, "a", "is ready", isReady), n.await(t, "b", "is ready", isReady)
	toA, toB := waitFor(t, a.Status.PodIP), waitFor(t, b.Status.PodIP)

	// From here on nothing that the pod says is heard.
	link, err := netlink.LinkByName(network.VethName(stateHash(n.opts.StateDir), netip.MustParseAddr(a.Status.PodIP)))
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkDel(link); err != nil {
		t.Fatal(err)
	}
	none := int64(0)
	if err := n.client.CoreV1().Pods(n.ns).Delete(t.Context(), "a", metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	select {
	case err := <-toA:
		if err == nil {
			t.Error("the request to the pod that is gone was answered")
		}
		t.Logf("told after %v: %v", time.Since(begun).Round(time.Millisecond), err)
	case <-time.After(20 * time.Second):
		t.Error("nobody told the request to the pod that is gone")
	}
	select {
	case err := <-toB:
		t.Errorf("the request to the other pod ended: %v", err)
	default:
	}
}

// waitFor sends a request that is answered after a minute, and returns when it is
// connected.
func waitFor(t *testing.T, ip string) <-chan error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	done := make(chan error, 1)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ip+":8000/sleep?seconds=60", nil)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	go func() {
		resp, err := tr.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		done <- err
	}()
	kubetest.Eventually(t, "the request to be under way", func() error {
		all, err := netlink.SocketDiagTCP(netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		for _, s := range all {
			if s.ID.Destination.String() == ip && s.State == netlink.TCP_ESTABLISHED {
				return nil
			}
		}
		return errors.New("no connection")
	})
	return done
}
