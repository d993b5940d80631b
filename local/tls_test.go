package local

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/local/authority"
)

// Two starts: the authority stays, the certificate is new, and what Node loads is
// there.
func TestTLSFiles(t *testing.T) {
	t.Parallel()
	var said []string
	o := Options{StateDir: t.TempDir(), TLS: true, Progress: func(line string) { said = append(said, line) }}
	if err := o.Complete(); err != nil {
		t.Fatal(err)
	}
	if o.Domain != DefaultDomain {
		t.Errorf("the domain is %q", o.Domain)
	}
	var serials []string
	for range 2 {
		u := &up{o: o, state: newState(o.StateDir)}
		if err := errors.Join(u.ensureAuthority(), u.writeTLS()); err != nil {
			t.Fatal(err)
		}
		cert := readCert(t, u.pki(gatewayCert))
		if err := cert.CheckSignatureFrom(readCert(t, authority.CertFile(u.tlsDir(o.Domain)))); err != nil {
			t.Error(err)
		}
		if want := []string{"sandlane.localhost", "*.sandlane.localhost", "localhost"}; !slices.Equal(cert.DNSNames, want) {
			t.Errorf("the certificate is for %v", cert.DNSNames)
		}
		if st, err := os.Stat(u.pki(gatewayKey)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("the key: %v, %v", st, err)
		}
		script, err := os.ReadFile(u.nodeResolve(o.Domain))
		if err != nil || !strings.Contains(string(script), "const domain = 'sandlane.localhost'\n") {
			t.Errorf("%s, %v", script, err)
		}
		serials = append(serials, cert.SerialNumber.String())
	}
	if serials[0] == serials[1] {
		t.Error("the second start has the certificate of the first")
	}
	if len(said) != 1 || !strings.Contains(said[0], "ca.crt") {
		t.Errorf("it said %q, want one line about the new authority", said)
	}
}

// A gateway answers with the domain that its Envoy has the certificate for.
func TestTLSReachesBoth(t *testing.T) {
	t.Parallel()
	for domain, want := range map[string]string{"d.test": "d.test:8443", "": "localhost:8443"} {
		d := dataPlane{state: newState(t.TempDir()), streams: minStreams, workers: 1}
		g := gatewayPair{name: "gateway", envoyName: "envoy", port: 8443, metricsPort: 1, domain: domain}
		args := d.gateway(g).Args
		if i := slices.Index(args, "--domain"); i < 0 || args[i+1] != want {
			t.Errorf("the gateway runs with %q, want --domain %s", args, want)
		}
		if domain != "" {
			a, _, err := authority.Ensure(filepath.Join(t.TempDir(), "tls"), domain, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			cert, key, err := a.Certificate(time.Now())
			if err := errors.Join(err, writeFile(d.pki(gatewayCert), cert, 0o600), writeFile(d.pki(gatewayKey), key, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := d.envoy(g); err != nil {
			t.Fatal(err)
		}
		secret, err := os.ReadFile(filepath.Join(d.gatewayRun(g.name), "edge-certificate.json"))
		if err != nil && domain != "" {
			t.Fatal(err)
		}
		config, err := os.ReadFile(filepath.Join(d.gatewayRun(g.name), "envoy.json"))
		if err != nil {
			t.Fatal(err)
		}
		config = append(config, secret...)
		for _, part := range []string{d.pki(gatewayCert), d.pki(gatewayKey), `"h2"`, `"http/1.1"`} {
			if strings.Contains(string(config), part) != (domain != "") {
				t.Errorf("domain %q: Envoy's configuration has %s: %v", domain, part, domain == "")
			}
		}
	}
}

func readCert(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatalf("%s is no PEM", path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// Each gateway is found where it says, with TLS and without.
func TestGatewayAddresses(t *testing.T) {
	t.Parallel()
	for domain, want := range map[string]string{
		"":       "http://127.0.0.1:443 localhost:443, http://127.0.0.1:12 localhost:12",
		"d.test": "https://127.0.0.1:443 d.test, https://127.0.0.1:12 d.test:12",
	} {
		file := describe(nil, gatewayPairs(2, 443, []int{11, 12, 13}, domain), UpFile{})
		var got []string
		for _, g := range file.Gateways {
			got = append(got, g.URL+" "+g.Domain)
		}
		if strings.Join(got, ", ") != want || file.GatewayURL != file.Gateways[0].URL || file.Domain != file.Gateways[0].Domain {
			t.Errorf("domain %q: %+v", domain, file)
		}
	}
}
