package check

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// Pinned makes a configuration that takes the certificate in pemText alone (the first
// one, where it is a chain), under the name that it is for: gateways are asked by
// their addresses, which no certificate names.
func Pinned(pemText []byte) (*tls.Config, error) {
	block, _ := pem.Decode(pemText)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("there is no certificate in PEM")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse the certificate: %w", err)
	}
	if len(certificate.DNSNames) == 0 {
		return nil, errors.New("the certificate is for no DNS name")
	}
	// A certificate among the roots is trusted as itself.
	roots := x509.NewCertPool()
	roots.AddCert(certificate)
	name := strings.Replace(certificate.DNSNames[0], "*.", "api.", 1)
	return &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12}, nil
}
