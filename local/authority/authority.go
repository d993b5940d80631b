package authority

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

const (
	// Life is how long an authority is valid.
	Life = 5 * 365 * 24 * time.Hour
	// CertificateLife is how long a certificate is that it signs.
	CertificateLife = 397 * 24 * time.Hour
	// skew is how far the clock of a client may be behind.
	skew = time.Hour
)

// Authority can sign certificates for its domain.
type Authority struct {
	domain string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
}

// subject tells our authorities from others.
var subject = pkix.Name{Organization: []string{"Sandlane"}, CommonName: "Sandlane local authority"}

var loopback = net.IPNet{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)}

// newAuthority makes one that is valid from now on.
func newAuthority(domain string, now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a certificate authority: %w", err)
	}
	cert, err := create(&x509.Certificate{
		Subject: subject, NotBefore: now.Add(-skew), NotAfter: now.Add(Life),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage:                    x509.KeyUsageCertSign,
		PermittedDNSDomainsCritical: true,
		PermittedDNSDomains:         permitted(domain),
		PermittedIPRanges:           []*net.IPNet{&loopback},
	}, nil, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &Authority{domain: domain, cert: cert, key: key}, nil
}

func permitted(domain string) []string { return []string{domain, "localhost"} }

// Certificate makes a key and a certificate for the domain, one label below it,
// localhost and 127.0.0.1, both as PEM.
func (a *Authority) Certificate(now time.Time) (cert, key []byte, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	c, err := create(&x509.Certificate{
		Subject:   pkix.Name{Organization: subject.Organization, CommonName: "Sandlane gateway"},
		NotBefore: now.Add(-skew), NotAfter: now.Add(CertificateLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{a.domain, "*." + a.domain, "localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, a.cert, k.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	key, err = encodeKey(k)
	return encodeCert(c), key, err
}

// create signs a certificate; without a parent it is its own.
func create(template, parent *x509.Certificate, public crypto.PublicKey, by crypto.Signer) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	template.SerialNumber = serial
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, by)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return cert, nil
}

// decode reads an authority; the error says why it is none of ours for the domain.
func decode(domain string, certPEM, keyPEM []byte) (*Authority, error) {
	cert, err := decodeCert(certPEM)
	if err != nil {
		return nil, err
	}
	key, err := decodeKey(keyPEM)
	if err != nil {
		return nil, err
	}
	switch {
	case cert.Subject.CommonName != subject.CommonName || !slices.Equal(cert.Subject.Organization, subject.Organization):
		return nil, fmt.Errorf("%s is %q", certFile, cert.Subject)
	case !slices.Equal(cert.PermittedDNSDomains, permitted(domain)):
		return nil, fmt.Errorf("%s is for other names", certFile)
	case cert.CheckSignatureFrom(cert) != nil:
		return nil, fmt.Errorf("%s is not signed by itself", certFile)
	case !key.PublicKey.Equal(cert.PublicKey):
		return nil, fmt.Errorf("%s is not the key of %s", keyFile, certFile)
	}
	return &Authority{domain: domain, cert: cert, key: key}, nil
}

// lasts reports whether a certificate that is made now ends before the authority.
func (a *Authority) lasts(now time.Time) bool {
	return !now.Before(a.cert.NotBefore) && now.Add(CertificateLife).Before(a.cert.NotAfter)
}

func encodeCert(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func encodeKey(k *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func decodeCert(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New(certFile + " is no certificate")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s is no certificate: %w", certFile, err)
	}
	return cert, nil
}

func decodeKey(text []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New(keyFile + " is no key")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New(keyFile + " is no key") // what it says of the bytes is nobody's business
	}
	k, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New(keyFile + " is a key of another kind")
	}
	return k, nil
}
