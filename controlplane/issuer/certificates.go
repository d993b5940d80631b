package issuer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// skew is how far the clocks of the cluster may differ.
const skew = time.Hour

func newAuthority(now time.Time) (map[string][]byte, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "Sandlane control plane"}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: now.Add(-skew), NotAfter: now.Add(authorityLife),
	}
	return create(template, nil, nil)
}

func newLeaf(s side, ca *x509.Certificate, caKey *ecdsa.PrivateKey, now time.Time) (map[string][]byte, error) {
	end := now.Add(leafLife)
	if end.After(ca.NotAfter) {
		end = ca.NotAfter
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: s.name}, DNSNames: []string{s.name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{s.usage}, NotBefore: now.Add(-skew), NotAfter: end,
	}
	data, err := create(template, ca, caKey)
	if err == nil {
		data[KeyCA] = encodeCert(ca.Raw)
	}
	return data, err
}

// create makes a key and a certificate; without a parent it signs itself.
func create(template, parent *x509.Certificate, by *ecdsa.PrivateKey) (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	if parent == nil {
		parent, by = template, key
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return map[string][]byte{
		KeyCert: encodeCert(der), KeyPrivate: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}, nil
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// decodePair reads a certificate and its key. No error quotes what a key holds.
func decodePair(certText, keyText []byte) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(certText)
	if block == nil {
		return nil, nil, fmt.Errorf("%s is no certificate", KeyCert)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("%s is no certificate: %w", KeyCert, err)
	}
	if block, _ = pem.Decode(keyText); block == nil {
		return nil, nil, errors.New(KeyPrivate + " is no key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(*ecdsa.PrivateKey)
	if err != nil || !ok {
		return nil, nil, errors.New(KeyPrivate + " is no ECDSA key")
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, nil, fmt.Errorf("%s is not the key of %s", KeyPrivate, KeyCert)
	}
	return cert, key, nil
}
