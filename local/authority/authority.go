package authority

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/sandlane/sandlane/credentials/certificate"
)

const (
	// Life is how long an authority is valid.
	Life = 5 * 365 * 24 * time.Hour
	// CertificateLife is how long a certificate is that it signs.
	CertificateLife = 397 * 24 * time.Hour
)

// Authority can sign certificates for its domain.
type Authority struct {
	domain string
	*certificate.Pair
}

// subject tells our authorities from others.
var subject = pkix.Name{Organization: []string{"Sandlane"}, CommonName: "Sandlane local authority"}

var loopback = net.IPNet{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)}

// newAuthority makes one that is valid from now on.
func newAuthority(domain string, now time.Time) (*Authority, error) {
	template := &x509.Certificate{
		Subject: subject, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage:                    x509.KeyUsageCertSign,
		PermittedDNSDomainsCritical: true,
		PermittedDNSDomains:         permitted(domain),
		PermittedIPRanges:           []*net.IPNet{&loopback},
	}
	template.NotBefore, template.NotAfter = certificate.Validity(now, Life)
	pair, err := certificate.New(template, nil)
	if err != nil {
		return nil, err
	}
	return &Authority{domain, pair}, nil
}

func permitted(domain string) []string { return []string{domain, "localhost"} }

// Certificate makes a key and a certificate for the domain, one label below it,
// localhost and 127.0.0.1, both as PEM.
func (a *Authority) Certificate(now time.Time) (cert, key []byte, err error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{Organization: subject.Organization, CommonName: "Sandlane gateway"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{a.domain, "*." + a.domain, "localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	template.NotBefore, template.NotAfter = certificate.Validity(now, CertificateLife)
	pair, err := certificate.New(template, a.Pair)
	if err != nil {
		return nil, nil, err
	}
	return pair.PEM()
}

// decode reads an authority; the error says why it is none of ours for the domain.
func decode(domain string, certPEM, keyPEM []byte) (*Authority, error) {
	cert, err := certificate.ParseCert(certFile, certPEM)
	if err != nil {
		return nil, err
	}
	key, err := certificate.ParseKey(keyFile, keyPEM)
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
	}
	pair, err := certificate.Join(certFile, cert, keyFile, key)
	if err != nil {
		return nil, err
	}
	return &Authority{domain, pair}, nil
}

// lasts reports whether a certificate that is made now ends before the authority.
func (a *Authority) lasts(now time.Time) bool {
	return !now.Before(a.Cert.NotBefore) && now.Add(CertificateLife).Before(a.Cert.NotAfter)
}
