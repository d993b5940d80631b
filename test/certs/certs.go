// Package certs makes certificate authorities and certificates for tests, good or
// bad in whatever way a test wants.
//
// The tests of packages controlplane and gateway call it.
package certs

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandlane/sandlane/credentials/certificate"
)

// Authority signs certificates.
type Authority struct {
	*certificate.Pair
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
	return &Authority{create(t, template, nil)}
}

// PEM is the authority's certificate.
func (a *Authority) PEM() []byte { return certificate.PEM(a.Cert) }

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
	cert, key, err := create(t, template, a.Pair).PEM()
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
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

func create(t testing.TB, template *x509.Certificate, by *certificate.Pair) *certificate.Pair {
	t.Helper()
	template.NotBefore = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().AddDate(100, 0, 0)
	}
	pair, err := certificate.New(template, by)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}
