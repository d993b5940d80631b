package main

import (
	"encoding/pem"
	"strings"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// trustFile is where Go, curl and OpenSSL look for authorities.
const trustFile = "etc/ssl/certs/ca-certificates.crt"

// authorities are the certificate authorities of Mozilla's list as PEM, from a
// module, since this machine's own would differ from the next one's. Those that
// the list trusts under a condition are left out: a file cannot say conditions.
func authorities() string {
	var text strings.Builder
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a Builder takes everything
		}
	}
	return text.String()
}
