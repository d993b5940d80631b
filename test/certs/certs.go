// Package certs makes certificate authorities and certificates for tests, good or
// bad in whatever way a test wants. It is not how the product makes any (packages
// local, local/authority and local/node do).
//
// The tests of packages controlplane and gateway call it.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Leaf is what a certificate says. Without times it is valid from 1999 on, for
// longer than any test runs, by virtual time as well.
type Leaf struct {
	Names    []string
	URIs     []string
	Usage    x509.ExtKeyUsage
	NotAfter time.Time
}

// New makes an authority.
func New(t testing.TB) *Authority {
	t.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: t.Name()}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a := &Authority{key: newKey(t)}
	a.cert = create(t, template, template, a.key, a.key)
	return a
}

// PEM is the authority's certificate.
func (a *Authority) PEM() []byte { return encode("CERTIFICATE", a.cert.Raw) }

// Issue returns a certificate and its key in PEM.
func (a *Authority) Issue(t testing.TB, leaf Leaf) (cert, key []byte) {
	t.Helper()
	template := &x509.Certificate{
		DNSNames: leaf.Names, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{leaf.Usage}, NotAfter: leaf.NotAfter,
	}
	for _, s := range leaf.URIs {
		uri, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, uri)
	}
	k := newKey(t)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return encode("CERTIFICATE", create(t, template, a.cert, k, a.key).Raw), encode("PRIVATE KEY", pkcs8)
}

// Write puts files into a new folder, and returns their paths in order.
func Write(t testing.TB, contents ...[]byte) []string {
	t.Helper()
	dir := t.TempDir()
	paths := make([]string, len(contents))
	for i, content := range contents {
		paths[i] = filepath.Join(dir, string(rune('a'+i))+".pem")
		if err := os.WriteFile(paths[i], content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func create(t testing.TB, template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore = serial, time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().AddDate(100, 0, 0)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
