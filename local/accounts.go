package local

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sandlane/sandlane/access"
)

// accounts are the accounts of gateways and controller.
func accounts() access.Options {
	return access.Options{SystemNamespace: SystemNamespace, KeyNamespace: KeyNamespace}
}

// accountLeaf is the certificate by which the API server takes a process for its
// service account: the same rights and admission policies count as on a cluster,
// where the process shows the account's token.
func accountLeaf(p access.Process) leaf {
	o := accounts()
	return leaf{accountCert(p), accountKey(p), x509.Certificate{
		Subject:     pkix.Name{CommonName: o.Username(p), Organization: o.Groups()},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}}
}

func accountCert(p access.Process) string { return "account-" + string(p) + ".crt" }
func accountKey(p access.Process) string  { return "account-" + string(p) + ".key" }

// writeKubeconfigs makes the kubeconfigs of the administrator and of each process.
func (s state) writeKubeconfigs(apiServerPort int) error {
	err := s.writeKubeconfig(s.kubeconfig(), "admin", adminCert, adminKey, apiServerPort)
	for _, p := range access.Processes() {
		err = errors.Join(err, s.writeKubeconfig(s.accountKubeconfig(p), string(p), accountCert(p), accountKey(p), apiServerPort))
	}
	return err
}

// writeKubeconfig makes a kubeconfig. The certificates are named, not copied, so
// that the file itself holds no secret.
func (s state) writeKubeconfig(path, user, cert, key string, apiServerPort int) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["sandlane"] = &clientcmdapi.Cluster{
		Server: "https://" + loopback(apiServerPort), CertificateAuthority: s.pki(caCert),
	}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificate: s.pki(cert), ClientKey: s.pki(key)}
	config.Contexts["sandlane"] = &clientcmdapi.Context{Cluster: "sandlane", AuthInfo: user, Namespace: "default"}
	config.CurrentContext = "sandlane"
	b, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	return writeFile(path, b, 0o600)
}
