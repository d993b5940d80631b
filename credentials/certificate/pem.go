package certificate

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// Kinds of PEM blocks.
const (
	blockCert    = "CERTIFICATE"
	blockPrivate = "PRIVATE KEY"
	blockPublic  = "PUBLIC KEY"
)

// PEM returns both as PEM.
func (p *Pair) PEM() (cert, key []byte, err error) {
	key, err = PrivatePEM(p.Key)
	return PEM(p.Cert), key, err
}

// PEM returns a certificate as PEM.
func PEM(cert *x509.Certificate) []byte { return encode(blockCert, cert.Raw) }

// PrivatePEM returns a key as PEM.
func PrivatePEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return encode(blockPrivate, der), nil
}

// PublicPEM returns the public part of a key as PEM.
func PublicPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return encode(blockPublic, der), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// ParseCert reads a certificate; name is what errors call it.
func ParseCert(name string, text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != blockCert {
		return nil, fmt.Errorf("%s is no certificate", name)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s is no certificate: %w", name, err)
	}
	return cert, nil
}

// ParseKey reads a key; name is what errors call it.
func ParseKey(name string, text []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != blockPrivate {
		return nil, fmt.Errorf("%s is no key", name)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s is no key", name) // the error may tell of its bytes
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s is no ECDSA key", name)
	}
	return key, nil
}

// Join makes a pair of a certificate and its key; the names are what an error calls
// them.
func Join(certName string, cert *x509.Certificate, keyName string, key *ecdsa.PrivateKey) (*Pair, error) {
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("%s is not the key of %s", keyName, certName)
	}
	return &Pair{cert, key}, nil
}
