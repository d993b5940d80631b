package node

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"os"
	"time"

	"github.com/sandlane/sandlane/credentials/certificate"
)

// client is the user and group in a certificate that a client shows to the API server.
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
	template := &x509.Certificate{Subject: pkix.Name{CommonName: n.Name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	ca, err := sign(template, nil)
	if err != nil {
		return err
	}
	issue := func(name string, leaf *x509.Certificate) error {
		leaf.KeyUsage = x509.KeyUsageDigitalSignature
		pair, err := sign(leaf, ca)
		if err != nil {
			return err
		}
		cert, key, err := pair.PEM()
		return errors.Join(err, n.writePKIFile(name+".crt", cert), n.writePKIFile(name+".key", key))
	}
	if err := n.writePKIFile("ca.crt", certificate.PEM(ca.Cert)); err != nil {
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
	key, err := certificate.NewKey()
	if err != nil {
		return err
	}
	private, privateErr := certificate.PrivatePEM(key)
	public, publicErr := certificate.PublicPEM(key)
	return errors.Join(privateErr, publicErr, n.writePKIFile("accounts.key", private), n.writePKIFile("accounts.pub", public))
}

func (n *Node) pki(name string) string { return n.file("pki", name) }

func (n *Node) writePKIFile(name string, text []byte) error {
	return os.WriteFile(n.pki(name), text, 0o600)
}

func sign(template *x509.Certificate, by *certificate.Pair) (*certificate.Pair, error) {
	template.NotBefore, template.NotAfter = certificate.Validity(time.Now(), 365*24*time.Hour)
	return certificate.New(template, by)
}
