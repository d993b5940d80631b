package local

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"time"

	"github.com/sandlane/sandlane/access"
	"github.com/sandlane/sandlane/credentials/certificate"
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
	ca, err := newCA("sandlane local authority")
	if err != nil {
		return err
	}
	files := map[string][]byte{caCert: certificate.PEM(ca.Cert)}
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
		if files[leaf.cert], files[leaf.key], err = sign(&leaf.template, ca); err != nil {
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

func newCA(name string) (*certificate.Pair, error) {
	return create(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}, nil)
}

func sign(template *x509.Certificate, ca *certificate.Pair) (cert, key []byte, err error) {
	template.KeyUsage = x509.KeyUsageDigitalSignature
	pair, err := create(template, ca)
	if err != nil {
		return nil, nil, err
	}
	return pair.PEM()
}

func create(template *x509.Certificate, by *certificate.Pair) (*certificate.Pair, error) {
	template.NotBefore, template.NotAfter = certificate.Validity(time.Now(), certLife)
	return certificate.New(template, by)
}

// keyPair makes the key that service account tokens are signed with.
func keyPair() (public, private []byte, err error) {
	key, err := certificate.NewKey()
	if err != nil {
		return nil, nil, err
	}
	if public, err = certificate.PublicPEM(key); err != nil {
		return nil, nil, err
	}
	private, err = certificate.PrivatePEM(key)
	return public, private, err
}
