package proxy

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sandlane/sandlane/credentials/certificate"
)

const (
	// leafLife is how long a certificate for a name is good, and leafRenew how much of it
	// must be left when it is used.
	leafLife, leafRenew = 24 * time.Hour, time.Hour
	// maxLeaves bounds the certificates that are kept: about 2 KB each.
	maxLeaves = 4096
)

// Authority makes a certificate for each name whose connections end here. It is safe for
// concurrent use.
type Authority struct {
	by func() *certificate.Pair

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

// NewAuthority returns an authority that signs with the pair that by returns at the time.
func NewAuthority(by func() *certificate.Pair) (*Authority, error) {
	if is := by().Cert; !is.IsCA || is.KeyUsage&x509.KeyUsageCertSign == 0 {
		return nil, errors.New("the certificate of egress's authority may sign no others")
	}
	return &Authority{by: by, leaves: map[string]*tls.Certificate{}}, nil
}

// leaf returns a certificate for that one host.
func (a *Authority) leaf(host string) (*tls.Certificate, error) {
	by := a.by()
	a.mu.Lock()
	leaf := a.leaves[host]
	a.mu.Unlock()
	if leaf != nil && bytes.Equal(leaf.Certificate[1], by.Cert.Raw) && time.Until(leaf.Leaf.NotAfter) > leafRenew {
		return leaf, nil
	}
	from, until := certificate.Validity(time.Now(), leafLife)
	pair, err := certificate.New(&x509.Certificate{
		DNSNames: []string{host}, NotBefore: from, NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, by)
	if err != nil {
		return nil, fmt.Errorf("for %s: %w", host, err)
	}
	leaf = &tls.Certificate{Certificate: [][]byte{pair.Cert.Raw, by.Cert.Raw}, PrivateKey: pair.Key, Leaf: pair.Cert}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.leaves) >= maxLeaves {
		clear(a.leaves) // those in use are made again
	}
	a.leaves[host] = leaf
	return leaf, nil
}
