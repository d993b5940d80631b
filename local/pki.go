package local

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"

	"github.com/sandlane/sandlane/access"
)

// Files of the cluster's certificates and keys.
const (
	caCert     = "ca.crt"
	serverCert = "server.crt" // etcd and kube-apiserver, also as etcd's own peer
	serverKey  = "server.key"
	adminCert  = "admin.crt" // the administrator, and kube-apiserver towards etcd
	adminKey   = "admin.key"
	saPublic   = "service-account.pub"
	saPrivate  = "service-account.key"
)

// certLife is longer than any `up` lives.
const certLife = 10 * 365 * 24 * time.Hour

// leaf is a certificate to be signed, and the files that it and its key go to.
type leaf struct {
	cert, key string
	template  x509.Certificate
}

// writePKI makes a new certificate authority and everything signed by it. The
// authority's key is not kept.
func (s state) writePKI() error {
	ca, caPrivate, err := newCA()
	if err != nil {
		return err
	}
	files := map[string][]byte{caCert: encode("CERTIFICATE", ca.Raw)}
	leaves := []leaf{
		{serverCert, serverKey, x509.Certificate{
			Subject:     pkix.Name{CommonName: "sandlane local"},
			DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}},
		{adminCert, adminKey, x509.Certificate{
			Subject:     pkix.Name{CommonName: "sandlane-admin", Organization: []string{"system:masters"}},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}},
	}
	for _, p := range access.Processes() {
		leaves = append(leaves, accountLeaf(p))
	}
	for _, leaf := range leaves {
		if files[leaf.cert], files[leaf.key], err = sign(&leaf.template, ca, caPrivate); err != nil {
			return err
		}
	}
	if files[saPublic], files[saPrivate], err = keyPair(); err != nil {
		return err
	}
	for name, content := range files {
		if err := writeFile(s.pki(name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func newCA() (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate authority: %w", err)
	}
	template := x509.Certificate{
		Subject: pkix.Name{CommonName: "sandlane local"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := create(&template, &template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate authority: %w", err)
	}
	return cert, key, nil
}

func sign(template, ca *x509.Certificate, caKey crypto.Signer) (cert, key []byte, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := create(template, ca, k.Public(), caKey)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", pkcs8), nil
}

func create(template, parent *x509.Certificate, public crypto.PublicKey, by crypto.Signer) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(certLife)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, by)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return der, nil
}

// keyPair makes the key that service account tokens are signed with.
func keyPair() (public, private []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	sec1, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	return encode("PUBLIC KEY", der), encode("EC PRIVATE KEY", sec1), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
