package e2e

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// A process that may open a gateway's control socket still needs the controller's
// certificate to be heard. That the controller is heard, every release shows.
func TestControlPlaneIsClosed(t *testing.T) {
	var leases coordinationv1.LeaseList
	if err := shared.Client.List(t.Context(), &leases, client.InNamespace("sandlane-system")); err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, l := range leases.Items {
		socket, isGateway := strings.CutPrefix(l.Annotations[v1alpha1.AnnotationGatewayAddress], "unix://")
		if !isGateway {
			continue
		}
		tried++
		dial := func() net.Conn {
			conn, err := net.DialTimeout("unix", socket, 5*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			return conn
		}
		plain := dial()
		// HTTP/2's preface and empty settings. A server of it answers with its own
		// settings: a frame of type 4 (its fourth byte).
		_, _ = io.WriteString(plain, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		if answer, _ := io.ReadAll(plain); len(answer) > 3 && answer[0] == 0 && answer[3] == 4 {
			t.Errorf("%s answers plain text: %q", l.Name, answer)
		}
		anonymous := tls.Client(dial(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err := anonymous.HandshakeContext(t.Context()); err != nil {
			t.Fatalf("%s speaks no TLS: %v", l.Name, err)
		}
		if names := anonymous.ConnectionState().PeerCertificates[0].DNSNames; len(names) != 1 || names[0] != "sandlane-gateway" {
			t.Errorf("%s shows a certificate of %v", l.Name, names)
		}
		if answer, err := io.ReadAll(anonymous); err == nil || !strings.Contains(err.Error(), "certificate required") {
			t.Errorf("%s answers who shows no certificate: %q, %v", l.Name, answer, err)
		}
	}
	if tried != len(shared.Up.Gateways) {
		t.Errorf("tried %d gateways of %d", tried, len(shared.Up.Gateways))
	}
}
