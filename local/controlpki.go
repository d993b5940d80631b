package local

import (
	"crypto/x509"
	"fmt"

	"github.com/sandlane/sandlane/credentials/certificate"
)

// controlCA is the authority of the control plane's certificates; those have the
// names of their subcommands.
const controlCA = "control-ca.crt"

// controlSides are the two sides of the control plane: the name of each, of its peer, and
// what its certificate is for.
var controlSides = map[string]struct {
	identity, peer string
	usage          x509.ExtKeyUsage
}{
	"gateway":    {"sandlane-gateway", "sandlane-controller", x509.ExtKeyUsageServerAuth},
	"egress":     {"sandlane-egress", "sandlane-controller", x509.ExtKeyUsageServerAuth},
	"controller": {"sandlane-controller", "sandlane-gateway", x509.ExtKeyUsageClientAuth},
}

func controlFiles(side string) (cert, key string) {
	return "control-" + side + ".crt", "control-" + side + ".key"
}

// writeControlPKI makes the certificates by which controller and gateways know each
// other, from an authority of their own: none of the cluster's certificates opens
// the control plane, and theirs open nothing else. The authority's key is not kept.
func (s state) writeControlPKI() error {
	ca, err := newCA("sandlane control authority")
	if err != nil {
		return err
	}
	files := map[string][]byte{controlCA: certificate.PEM(ca.Cert)}
	for side, is := range controlSides {
		cert, key := controlFiles(side)
		template := x509.Certificate{DNSNames: []string{is.identity}, ExtKeyUsage: []x509.ExtKeyUsage{is.usage}}
		if files[cert], files[key], err = sign(&template, ca); err != nil {
			return err
		}
	}
	for name, content := range files {
		if err := writeFile(s.pki(name), content, 0o600); err != nil {
			return fmt.Errorf("the control plane's certificates: %w", err)
		}
	}
	return nil
}

// controlArgs are the flags of one side.
func (s state) controlArgs(side string) []string {
	cert, key := controlFiles(side)
	return []string{
		"--control-tls-cert", s.pki(cert), "--control-tls-key", s.pki(key),
		"--control-tls-ca", s.pki(controlCA), "--control-tls-peer", controlSides[side].peer,
	}
}
