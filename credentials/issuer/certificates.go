package issuer

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"time"

	"github.com/sandlane/sandlane/credentials/certificate"
)

func newAuthority(now time.Time) (map[string][]byte, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "Sandlane control plane"}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	template.NotBefore, template.NotAfter = certificate.Validity(now, authorityLife)
	return create(template, nil)
}

func newLeaf(s side, ca *certificate.Pair, now time.Time) (map[string][]byte, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: s.name}, DNSNames: []string{s.name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{s.usage},
	}
	template.NotBefore, template.NotAfter = certificate.Validity(now, leafLife)
	if template.NotAfter.After(ca.Cert.NotAfter) {
		template.NotAfter = ca.Cert.NotAfter
	}
	data, err := create(template, ca)
	if err == nil {
		data[KeyCA] = certificate.PEM(ca.Cert)
	}
	return data, err
}

// create makes what a Secret holds.
func create(template *x509.Certificate, by *certificate.Pair) (map[string][]byte, error) {
	made, err := certificate.New(template, by)
	if err != nil {
		return nil, err
	}
	cert, key, err := made.PEM()
	return map[string][]byte{KeyCert: cert, KeyPrivate: key}, err
}

// decodePair reads a certificate and its key. No error quotes what a key holds.
func decodePair(certText, keyText []byte) (*certificate.Pair, error) {
	cert, err := certificate.ParseCert(KeyCert, certText)
	if err != nil {
		return nil, err
	}
	key, err := certificate.ParseKey(KeyPrivate, keyText)
	if err != nil {
		return nil, err
	}
	return certificate.Join(KeyCert, cert, KeyPrivate, key)
}
