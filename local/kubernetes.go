package local

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/access"
	"github.com/sandlane/sandlane/local/binaries"
	"github.com/sandlane/sandlane/local/node"
	"github.com/sandlane/sandlane/local/supervise"
)

// auditPolicy records who wrote pods and sandboxes, without their content: the
// tests count claims by it, and a person can follow what happened. The first verb
// is for the rule about Sandlane's own accounts.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
%s- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
  resources:
  - {group: "", resources: [pods]}
  - {group: sandlane.dev, resources: [sandboxes]}
- level: None
`

// auditAccounts records every request of Sandlane's processes: tests compare them
// with the list of their rights.
const auditAccounts = `- level: Metadata
  users: [%q, %q]
`

// kubernetes is what the three processes of Kubernetes agree on.
type kubernetes struct {
	state
	bin                         map[string]string
	kubelet                     node.KubeletCredentials
	audit                       bool // record each request of Sandlane's processes
	etcdPort, peerPort, apiPort int
}

func (c *kubernetes) etcd() supervise.Spec {
	client, peer := "https://"+loopback(c.etcdPort), "https://"+loopback(c.peerPort)
	tlsFlags := func(prefix string) []string {
		return []string{
			"--" + prefix + "cert-file=" + c.pki(serverCert), "--" + prefix + "key-file=" + c.pki(serverKey),
			"--" + prefix + "trusted-ca-file=" + c.pki(caCert), "--" + prefix + "client-cert-auth",
		}
	}
	args := []string{
		"--name=default", "--data-dir=" + c.path("cluster", "etcd"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
		"--unsafe-no-fsync", // the content lives no longer than this machine's next boot
		"--log-level=warn",
	}
	args = append(append(args, tlsFlags("")...), tlsFlags("peer-")...)
	return supervise.Spec{
		Name: binaries.Etcd, Path: c.bin[binaries.Etcd], Args: args, LogFile: c.log(binaries.Etcd),
		Ready: c.probe(client + "/health"),
	}
}

func (c *kubernetes) apiServer() supervise.Spec {
	return supervise.Spec{
		Name: binaries.APIServer, Path: c.bin[binaries.APIServer], LogFile: c.log(binaries.APIServer),
		Args: []string{
			"--etcd-servers=https://" + loopback(c.etcdPort),
			"--etcd-cafile=" + c.pki(caCert), "--etcd-certfile=" + c.pki(adminCert), "--etcd-keyfile=" + c.pki(adminKey),
			"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.apiPort),
			"--tls-cert-file=" + c.pki(serverCert), "--tls-private-key-file=" + c.pki(serverKey),
			"--client-ca-file=" + c.pki(caCert),
			"--kubelet-client-certificate=" + c.kubelet.ClientCert, "--kubelet-client-key=" + c.kubelet.ClientKey,
			"--kubelet-certificate-authority=" + c.kubelet.ServerCert, "--kubelet-preferred-address-types=InternalIP",
			"--authorization-mode=Node,RBAC", "--anonymous-auth=false",
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + c.pki(saPublic), "--service-account-signing-key-file=" + c.pki(saPrivate),
			"--service-cluster-ip-range=192.0.2.0/24", // reserved for documentation: nothing routes there
			"--endpoint-reconciler-type=none",
			"--enable-priority-and-fairness=false", "--profiling=false",
			"--audit-policy-file=" + c.path("cluster", "audit-policy.yaml"),
			"--audit-log-path=" + c.auditLog(), fmt.Sprintf("--audit-log-maxsize=%d", c.auditMegabytes()), "--audit-log-maxbackup=3",
		},
		Ready: c.probe("https://" + loopback(c.apiPort) + "/readyz"),
	}
}

// auditMegabytes is how long a file of the audit log gets before the next is begun:
// long enough to have a whole test run if all is recorded.
func (c *kubernetes) auditMegabytes() int {
	if c.audit {
		return 500
	}
	return 10
}

// controllerManager runs the few controllers without which owner references,
// namespace deletion and pod creation do not work. It opens no port; it is
// ready when it has made a service account, without which a namespace has no pods.
func (c *kubernetes) controllerManager(api client.Client) supervise.Spec {
	return supervise.Spec{
		Name: binaries.ControllerManager, Path: c.bin[binaries.ControllerManager], LogFile: c.log(binaries.ControllerManager),
		Args: []string{
			"--kubeconfig=" + c.kubeconfig(), "--leader-elect=false", "--secure-port=0", "--profiling=false",
			"--controllers=garbage-collector-controller,namespace-controller,serviceaccount-controller",
			"--service-account-private-key-file=" + c.pki(saPrivate), "--root-ca-file=" + c.pki(caCert),
			"--kube-api-qps=200", "--kube-api-burst=400",
		},
		Ready: func(ctx context.Context) error {
			var account corev1.ServiceAccount
			if err := api.Get(ctx, client.ObjectKey{Namespace: metav1.NamespacePublic, Name: "default"}, &account); err != nil {
				return fmt.Errorf("look for the service account that it makes: %w", err)
			}
			return nil
		},
	}
}

func (c *kubernetes) writeAuditPolicy() error {
	more := ""
	if o := accounts(); c.audit {
		more = fmt.Sprintf(auditAccounts, o.Username(access.Gateway), o.Username(access.Controller))
	}
	return writeFile(c.path("cluster", "audit-policy.yaml"), fmt.Appendf(nil, auditPolicy, more), 0o600)
}

// probe asks as the administrator and wants 200.
func (c *kubernetes) probe(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		pair, err := tls.LoadX509KeyPair(c.pki(adminCert), c.pki(adminKey))
		if err != nil {
			return fmt.Errorf("read the administrator's certificate: %w", err)
		}
		ca, err := os.ReadFile(c.pki(caCert))
		if err != nil {
			return fmt.Errorf("read the certificate authority: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(ca) {
			return errors.New("the certificate authority is not PEM")
		}
		return get(ctx, url, &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS12})
	}
}

// get wants a 200, on a connection of its own.
func get(ctx context.Context, url string, config *tls.Config) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return nil
}

// On a machine that has not built them yet, the first request waits for the two programs of
// Kubernetes that answer it, and the others are built while it is served:
//
//	etcd, kube-apiserver      before anything starts
//	kube-controller-manager   beside; until it runs, namespaces and objects whose owner is gone
//	                          are not deleted, and a new namespace has no pods
//	kubectl                   beside; `sandlane kubectl` waits for it
//
// If the build of one fails, `up` goes on without it and says so; the next `up` tries again.

// findKubernetes returns the paths of the programs that are there, and of those that `up`
// cannot start without, which it builds.
func (u *up) findKubernetes(ctx context.Context) (map[string]string, error) {
	o := binaries.Options{Progress: u.o.Progress}
	bin, err := binaries.Find(ctx, o, binaries.Etcd, binaries.APIServer)
	if err != nil {
		return nil, err
	}
	there, err := binaries.Present(o, binaries.All()...)
	if err != nil {
		return nil, err
	}
	maps.Copy(bin, there)
	return bin, nil
}

func (u *up) startControllerManager(ctx context.Context) error {
	return u.group.Start(ctx, u.kubernetes.controllerManager(u.api))
}

// addKubernetes builds and starts what findKubernetes has left out. It returns when ctx ends
// at the latest.
func (u *up) addKubernetes(ctx context.Context) {
	for _, later := range []struct {
		name, without string
		start         func(context.Context) error
	}{
		{binaries.ControllerManager, "namespaces and objects whose owner is gone are not deleted, and new namespaces have no pods", u.startControllerManager},
		{binaries.Kubectl, "`sandlane kubectl` tries again", func(context.Context) error { return nil }},
	} {
		if u.kubernetes.bin[later.name] != "" {
			continue
		}
		found, err := binaries.Find(ctx, binaries.Options{Progress: u.o.Progress, Background: true}, later.name)
		if err == nil {
			u.kubernetes.bin[later.name] = found[later.name]
			err = later.start(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			u.o.Progress(fmt.Sprintf("warning: there is no %s, so %s: %v", later.name, later.without, err))
		}
	}
}
