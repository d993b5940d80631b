package check

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sandlane/sandlane/test/bubble"
)

// A whole installation passes, and nothing of the check lives on.
func TestPasses(t *testing.T) {
	f := &installation{}
	var said []string
	o := f.start(t)
	o.Progress = func(line string) { said = append(said, line) }
	if err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if len(said) != 3 {
		t.Errorf("three steps said %q", said)
	}
	for id, live := range f.live {
		if live {
			t.Errorf("sandbox %s lives on", id)
		}
	}
	if len(f.ended) != 2 {
		t.Errorf("%v were ended, want two sandboxes", f.ended)
	}
}

// Each fault of the second gateway alone fails the check, with a line that says where,
// and what the check has made is ended.
func TestFaults(t *testing.T) {
	for fault, want := range map[string]string{
		"answers without a key": "a request without an API key: GET http://SECOND/sandboxes is answered with 200, want 401",
		"commands fail":         "a sandbox of the REST API: a command through FIRST: it printed",
		"other files":           "a sandbox of the REST API: a file through FIRST: through SECOND it is read with 200",
		"unreachable":           "a sandbox of the REST API: a file through FIRST: through SECOND it is read with 502",
		"reached after its end": "a sandbox of the REST API: a request to it after its end: GET http://SECOND/ is answered with 200, want 502",
		"the program fails":     "a sandbox of a first request: the first request: GET http://FIRST/ is answered with 500",
		"other messages":        "a sandbox of a first request: a WebSocket through SECOND: it answers",
	} {
		t.Run(fault, func(t *testing.T) {
			f := &installation{fault: fault}
			o := f.start(t)
			o.settle = time.Millisecond
			err := Run(t.Context(), o)
			want = strings.NewReplacer("FIRST", o.Gateways[0], "SECOND", o.Gateways[1]).Replace(want)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v; want %q", err, want)
			}
			if err != nil && strings.Contains(err.Error(), key) {
				t.Errorf("the error has the API key: %v", err)
			}
			for id, live := range f.live {
				if live {
					t.Errorf("sandbox %s lives on", id)
				}
			}
		})
	}
}

// Without a key nothing is made; without a gateway nothing passes.
func TestWithoutKey(t *testing.T) {
	f := &installation{}
	o := f.start(t)
	o.Key = ""
	if err := Run(t.Context(), o); err != nil || len(f.live) > 0 {
		t.Errorf("%v, sandboxes %v", err, f.live)
	}
	o.Gateways = nil
	if err := Run(t.Context(), o); err == nil {
		t.Error("an installation without a gateway passes")
	}
}

// What has not settled is asked again, until the time is over.
func TestSettle(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		tries := 0
		if err := settle(t.Context(), settleTimeout, func() error {
			if tries++; tries < 5 {
				return context.DeadlineExceeded
			}
			return nil
		}); err != nil || tries != 5 {
			t.Errorf("%v after %d tries", err, tries)
		}
		began := time.Now()
		if err := settle(t.Context(), settleTimeout, func() error { return context.DeadlineExceeded }); err == nil || time.Since(began) != settleTimeout {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// The pods that get requests, each once.
func TestAddresses(t *testing.T) {
	name, port, no := "http", int32(8080), false
	meta := metav1.ObjectMeta{Namespace: "system", Name: "sandlane", Labels: map[string]string{discoveryv1.LabelServiceName: "sandlane"}}
	of := func(slice string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: *meta.DeepCopy(), Endpoints: endpoints, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}}}
		s.Name = slice
		return s
	}
	api := fake.NewClientBuilder().WithObjects(
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Name: name, Port: 80}}}},
		of("a", discoveryv1.Endpoint{Addresses: []string{"10.1.0.2"}}, discoveryv1.Endpoint{Addresses: []string{"10.1.0.3"}, Conditions: discoveryv1.EndpointConditions{Ready: &no}}),
		of("b", discoveryv1.Endpoint{Addresses: []string{"10.1.0.1"}}, discoveryv1.Endpoint{Addresses: []string{"10.1.0.2"}}),
	).Build()
	service, pods, err := Addresses(t.Context(), api, "system", "sandlane", name)
	if err != nil || service != "10.0.0.1:80" || !slices.Equal(pods, []string{"10.1.0.1:8080", "10.1.0.2:8080"}) {
		t.Errorf("%s, %v, %v", service, pods, err)
	}
	if _, _, err := Addresses(t.Context(), api, "system", "sandlane", "https"); err == nil {
		t.Error("a port that is not there has an address")
	}
}

// The pinned certificate is taken by whatever address, another one is not.
func TestPinned(t *testing.T) {
	server := func(name string) (*httptest.Server, []byte) {
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(http.NotFoundHandler())
		s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}}
		s.StartTLS()
		t.Cleanup(s.Close)
		return s, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	right, text := server("*.sandboxes.example")
	wrong, _ := server("*.sandboxes.example")
	config, err := Pinned(text)
	if err != nil {
		t.Fatal(err)
	}
	for s, good := range map[*httptest.Server]bool{right: true, wrong: false} {
		d := newDoor(strings.TrimPrefix(s.URL, "https://"), config)
		if err := d.want(t.Context(), http.StatusNotFound, http.MethodGet, "/", nil, nil); (err == nil) != good {
			t.Errorf("good %t: %v", good, err)
		}
		d.close()
	}
	if _, err := Pinned([]byte("text")); err == nil {
		t.Error("text is taken for a certificate")
	}
}
