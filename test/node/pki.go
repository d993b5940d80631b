package node

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
	"os"
	"time"
)

// client is who shows a certificate to the API server.
type client struct{ user, group string }

// clients are the certificates that the node's programs have, by file name.
func (n *Node) clients() map[string]client {
	return map[string]client{
		"admin":              {"admin", "system:masters"},
		"node":               {"system:node:" + n.Name, "system:nodes"},
		"scheduler":          {"system:kube-scheduler", ""},
		"controller-manager": {"system:kube-controller-manager", ""},
		"proxy":              {"system:kube-proxy", ""},
	}
}

// writePKI makes one authority, the API server's certificate, those of its
// clients with a kubeconfig each, and the keys of service accounts.
func (n *Node) writePKI() error {
	caKey, err := newKey()
	if err != nil {
		return err
	}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: n.Name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	ca, err := sign(template, template, caKey, caKey)
	if err != nil {
		return err
	}
	issue := func(name string, leaf *x509.Certificate) error {
		key, err := newKey()
		if err != nil {
			return err
		}
		leaf.KeyUsage = x509.KeyUsageDigitalSignature
		cert, err := sign(leaf, ca, key, caKey)
		if err != nil {
			return err
		}
		return errors.Join(n.writePEM(name+".crt", "CERTIFICATE", cert.Raw), n.writeKey(name+".key", key))
	}
	if err := n.writePEM("ca.crt", "CERTIFICATE", ca.Raw); err != nil {
		return err
	}
	err = issue("server", &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		DNSNames:    []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"},
		IPAddresses: []net.IP{net.ParseIP(Address), net.ParseIP(serviceAddress), net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return err
	}
	for name, c := range n.clients() {
		subject := pkix.Name{CommonName: c.user}
		if c.group != "" {
			subject.Organization = []string{c.group}
		}
		if err := issue(name, &x509.Certificate{Subject: subject, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			return err
		}
		if err := os.WriteFile(n.file(name+".conf"), []byte(n.kubeconfig(name)), 0o600); err != nil {
			return err
		}
	}
	return n.writeAccountKeys()
}

// writeAccountKeys makes the pair that signs the tokens of service accounts.
func (n *Node) writeAccountKeys() error {
	key, err := newKey()
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encode a key: %w", err)
	}
	return errors.Join(n.writeKey("accounts.key", key), n.writePEM("accounts.pub", "PUBLIC KEY", public))
}

func (n *Node) pki(name string) string { return n.file("pki", name) }

func (n *Node) writeKey(name string, key crypto.Signer) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode a key: %w", err)
	}
	return n.writePEM(name, "PRIVATE KEY", der)
}

func (n *Node) writePEM(name, kind string, der []byte) error {
	return os.WriteFile(n.pki(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

func sign(template, parent *x509.Certificate, key, by crypto.Signer) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().AddDate(1, 0, 0)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}
