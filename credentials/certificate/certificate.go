// Package certificate makes a key and a certificate for it, and turns both into PEM
// and back. It keeps nothing and decides nothing: what is certified, and for how long,
// its callers say. Those are packages credentials/issuer, local and below it, and
// tests.
//
// All keys are ECDSA on P-256, in PKCS #8. No error says anything of a key's bytes.
package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"math/big"
	"time"
)

// skew is how far the clock of another process may be behind.
const skew = time.Hour

// Pair is a certificate and its key.
type Pair struct {
	Cert *x509.Certificate
	Key  *ecdsa.PrivateKey
}

// Validity is the time of a certificate that is made now and is good for life.
func Validity(now time.Time, life time.Duration) (notBefore, notAfter time.Time) {
	return now.Add(-skew), now.Add(life)
}

// New makes a key, and a certificate for it as the template says, signed by an
// authority; nil is by itself. It writes the template's serial number.
//
// A subject that is also the authority's is refused: OpenSSL, and so curl and Python,
// takes such a certificate for one that signed itself, and trusts it no further.
func New(template *x509.Certificate, by *Pair) (*Pair, error) {
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	if by == nil {
		by = &Pair{template, key}
	} else if template.Subject.String() == by.Cert.Subject.String() {
		return nil, fmt.Errorf("make a certificate: its subject %q is its authority's", template.Subject)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.Cert, key.Public(), by.Key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return &Pair{cert, key}, nil
}

// NewKey makes a key.
func NewKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}
