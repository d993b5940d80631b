package node

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/sandlane/sandlane/credentials/certificate"
	"github.com/sandlane/sandlane/local/node/status"
)

// KubeletCredentials are files with which the API server and the node's
// kubelet API (logs, exec) know each other: without them any user of the
// machine could run commands in the pods.
type KubeletCredentials struct {
	// ClientCert and ClientKey are for kube-apiserver's
	// --kubelet-client-certificate and --kubelet-client-key.
	ClientCert, ClientKey string
	// ServerCert is for --kubelet-certificate-authority.
	ServerCert string
	serverKey  string
}

// EnsureKubeletCredentials returns the files of this state folder and makes
// them if they are not there. Call it before the API server is started; Run
// uses the same files. Not safe for two processes at once.
func EnsureKubeletCredentials(stateDir string) (KubeletCredentials, error) {
	dir := filepath.Join(nodeDir(stateDir), "kubelet")
	c := KubeletCredentials{
		ClientCert: filepath.Join(dir, "client.crt"), ClientKey: filepath.Join(dir, "client.key"),
		ServerCert: filepath.Join(dir, "server.crt"), serverKey: filepath.Join(dir, "server.key"),
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return c, fmt.Errorf("make the folder of kubelet credentials: %w", err)
	}
	for _, pair := range []struct {
		cert, key string
		usage     x509.ExtKeyUsage
	}{
		{c.ClientCert, c.ClientKey, x509.ExtKeyUsageClientAuth},
		{c.ServerCert, c.serverKey, x509.ExtKeyUsageServerAuth},
	} {
		if _, err := tls.LoadX509KeyPair(pair.cert, pair.key); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return c, fmt.Errorf("read kubelet credentials: %w", err)
		}
		if err := selfSigned(pair.cert, pair.key, pair.usage); err != nil {
			return c, fmt.Errorf("make kubelet credentials: %w", err)
		}
	}
	return c, nil
}

func selfSigned(certFile, keyFile string, usage x509.ExtKeyUsage) error {
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: "sandlane-node"},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		BasicConstraintsValid: true, IsCA: true,
		IPAddresses: []net.IP{net.ParseIP(status.HostIP)}, DNSNames: []string{"localhost"},
	}
	template.NotBefore, template.NotAfter = certificate.Validity(time.Now(), 10*365*24*time.Hour)
	pair, err := certificate.New(template, nil)
	if err != nil {
		return err
	}
	cert, key, err := pair.PEM()
	if err != nil {
		return err
	}
	// The certificate last: with it the pair is complete.
	if err := os.WriteFile(keyFile, key, 0o600); err != nil {
		return err
	}
	return os.WriteFile(certFile, cert, 0o600)
}

// tlsConfig is the kubelet API's: it lets in the API server's certificate alone.
func (c KubeletCredentials) tlsConfig() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.ServerCert, c.serverKey)
	if err != nil {
		return nil, fmt.Errorf("read kubelet credentials: %w", err)
	}
	client, err := os.ReadFile(c.ClientCert)
	if err != nil {
		return nil, fmt.Errorf("read kubelet credentials: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(client) {
		return nil, errors.New("read kubelet credentials: no certificate in " + filepath.Base(c.ClientCert))
	}
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}, nil
}
