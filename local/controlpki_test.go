package local

import (
	"crypto/x509"
	"errors"
	"os"
	"slices"
	"testing"
)

// Both sides get what the other asks for, of one authority, for one purpose.
func TestControlPKI(t *testing.T) {
	t.Parallel()
	s := newState(t.TempDir())
	if err := errors.Join(s.writePKI(), s.writeControlPKI()); err != nil {
		t.Fatal(err)
	}
	peers := map[string]string{"gateway": "controller", "controller": "gateway"}
	for side, peer := range peers {
		certFile, keyFile := controlFiles(side)
		cert, roots := readCert(t, s.pki(certFile)), x509.NewCertPool()
		roots.AddCert(readCert(t, s.pki(controlCA)))
		usage := controlSides[side].usage
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			t.Errorf("%s: %v", side, err)
		}
		clusters := x509.NewCertPool()
		clusters.AddCert(readCert(t, s.pki(caCert)))
		if _, err := cert.Verify(x509.VerifyOptions{Roots: clusters, KeyUsages: []x509.ExtKeyUsage{usage}}); err == nil {
			t.Errorf("%s: the cluster trusts it", side)
		}
		asked := controlSides[peer].peer
		if !slices.Equal(cert.DNSNames, []string{asked}) || len(cert.ExtKeyUsage) != 1 {
			t.Errorf("%s is %v for %v, the %s wants %s", side, cert.DNSNames, cert.ExtKeyUsage, peer, asked)
		}
		if st, err := os.Stat(s.pki(keyFile)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("the key: %v, %v", st, err)
		}
		args := s.controlArgs(side)
		if want := []string{s.pki(certFile), s.pki(keyFile), s.pki(controlCA), asked}; args[1] != want[0] || args[3] != want[1] || args[5] != want[2] || args[7] == want[3] {
			t.Errorf("%s runs with %v", side, args)
		}
	}
}

// Clients that use OpenSSL, such as curl and Python's of Kubernetes, trust the kubeconfig's
// authority: no certificate that it signed has its subject.
func TestSubjectsOfTheCluster(t *testing.T) {
	t.Parallel()
	s := newState(t.TempDir())
	if err := s.writePKI(); err != nil {
		t.Fatal(err)
	}
	authority := readCert(t, s.pki(caCert))
	for _, file := range []string{serverCert, adminCert} {
		if cert := readCert(t, s.pki(file)); string(cert.RawIssuer) != string(authority.RawSubject) || string(cert.RawSubject) == string(cert.RawIssuer) {
			t.Errorf("%s of %q is by %q, want the authority, and another subject", file, cert.Subject, cert.Issuer)
		}
	}
}
