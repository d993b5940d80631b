package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"strings"
	"testing"
	"time"
)

func make2(t *testing.T) (authority, leaf *Pair) {
	t.Helper()
	from, until := Validity(time.Now(), time.Hour)
	authority, err := New(&x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotBefore: from, NotAfter: until}, nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err = New(&x509.Certificate{DNSNames: []string{"a.example"}, NotBefore: from, NotAfter: until}, authority)
	if err != nil {
		t.Fatal(err)
	}
	return authority, leaf
}

// What is made is signed by the authority, and is what it was after PEM.
func TestNewAndBack(t *testing.T) {
	authority, leaf := make2(t)
	roots := x509.NewCertPool()
	roots.AddCert(authority.Cert)
	if _, err := leaf.Cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: "a.example"}); err != nil {
		t.Error(err)
	}
	if authority.Cert.SerialNumber.Cmp(leaf.Cert.SerialNumber) == 0 {
		t.Error("two certificates have one serial number")
	}
	certText, keyText, err := leaf.PEM()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.X509KeyPair(certText, keyText); err != nil {
		t.Error(err)
	}
	cert, err := ParseCert("c", certText)
	if err != nil || !cert.Equal(leaf.Cert) {
		t.Fatalf("another certificate, %v", err)
	}
	key, err := ParseKey("k", keyText)
	if err != nil || !key.Equal(leaf.Key) {
		t.Fatalf("another key, %v", err)
	}
	if _, err := Join("c", cert, "k", key); err != nil {
		t.Error(err)
	}
	if _, err := Join("c", cert, "k", authority.Key); err == nil || err.Error() != "k is not the key of c" {
		t.Errorf("a key of another certificate: %v", err)
	}
}

// OpenSSL does not look for the authority of a certificate whose issuer is its subject.
func TestSubjectOfTheAuthority(t *testing.T) {
	authority, _ := make2(t)
	if _, err := New(&x509.Certificate{Subject: authority.Cert.Subject, DNSNames: []string{"a.example"}}, authority); err == nil {
		t.Error("a certificate has its authority's subject")
	}
}

// A file that is no certificate is refused by its name, and the error shows none of its content.
func TestParseRefuses(t *testing.T) {
	_, leaf := make2(t)
	certText, keyText, err := leaf.PEM()
	if err != nil {
		t.Fatal(err)
	}
	secret := "-----BEGIN PRIVATE KEY-----\nc2VjcmV0c2VjcmV0\n-----END PRIVATE KEY-----\n"
	for _, text := range [][]byte{nil, []byte("secretsecret"), keyText, []byte(secret)} {
		if _, err := ParseCert("c", text); err == nil || !strings.HasPrefix(err.Error(), "c is no certificate") {
			t.Errorf("%v", err)
		}
	}
	for _, text := range [][]byte{nil, []byte("secretsecret"), certText, []byte(secret)} {
		if _, err := ParseKey("k", text); err == nil || err.Error() != "k is no key" {
			t.Errorf("%v", err)
		}
	}
}
