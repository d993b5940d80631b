package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// program is a program of the node, by its name in Bin or Assets.
type program struct {
	name string
	args []string
}

// early are started before the API server serves, late after that.
func (n *Node) early() []program {
	return []program{
		{"etcd", []string{
			"--data-dir=" + n.file("etcd"), "--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
			"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
			"--initial-cluster=default=http://127.0.0.1:2380", "--unsafe-no-fsync", "--log-level=warn",
		}},
		{"containerd", []string{"--config", n.file("containerd.toml")}},
		{"kube-apiserver", []string{
			"--etcd-servers=http://127.0.0.1:2379", "--advertise-address=" + Address, "--bind-address=0.0.0.0", "--secure-port=6443",
			"--tls-cert-file=" + n.pki("server.crt"), "--tls-private-key-file=" + n.pki("server.key"), "--client-ca-file=" + n.pki("ca.crt"),
			"--kubelet-client-certificate=" + n.pki("admin.crt"), "--kubelet-client-key=" + n.pki("admin.key"),
			"--kubelet-preferred-address-types=InternalIP", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
			"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + n.pki("accounts.pub"),
			"--service-account-signing-key-file=" + n.pki("accounts.key"), "--service-cluster-ip-range=" + serviceRange,
			"--allow-privileged", "--profiling=false",
		}},
	}
}

func (n *Node) late() []program {
	return []program{
		{"kube-controller-manager", []string{
			"--kubeconfig=" + n.file("controller-manager.conf"), "--leader-elect=false", "--secure-port=0", "--use-service-account-credentials",
			"--service-account-private-key-file=" + n.pki("accounts.key"), "--root-ca-file=" + n.pki("ca.crt"),
			"--kube-api-qps=200", "--kube-api-burst=400",
		}},
		{"kube-scheduler", []string{"--kubeconfig=" + n.file("scheduler.conf"), "--leader-elect=false", "--secure-port=0"}},
		{"kubelet", []string{
			"--config=" + n.file("kubelet.yaml"), "--kubeconfig=" + n.file("node.conf"), "--node-ip=" + Address, "--hostname-override=" + n.Name,
			"--root-dir=" + n.file("kubelet"), "--cert-dir=" + n.file("kubelet", "pki"),
		}},
		// Without the conntrack flags kube-proxy ends: only the first network namespace has those settings.
		{"kube-proxy", []string{
			"--kubeconfig=" + n.file("proxy.conf"), "--proxy-mode=nftables", "--hostname-override=" + n.Name, "--cluster-cidr=" + podRange,
			"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s",
		}},
	}
}

// runPrograms starts all programs, says so, and keeps them running.
func (n *Node) runPrograms() error {
	s := newSpawner()
	go s.reap()
	for _, p := range n.early() {
		if err := n.keepRunning(s, p); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	if err := n.apiReady(ctx); err != nil {
		return err
	}
	for _, p := range n.late() {
		if err := n.keepRunning(s, p); err != nil {
			return err
		}
	}
	fmt.Println(saysStarted)
	select {} // until the keeper kills the node
}

// keepRunning starts a program, and restarts it a second after it has ended.
func (n *Node) keepRunning(s *spawner, p program) error {
	path := filepath.Join(n.o.Bin, p.name)
	if _, err := os.Stat(path); err != nil {
		path = filepath.Join(n.o.Assets, p.name)
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("there is no program %s in %s or %s: run hack/node/build.sh", p.name, n.o.Bin, n.o.Assets)
	}
	log, err := os.OpenFile(n.log(p.name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	ended, err := s.start(path, p.args, log)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	go func() {
		for {
			how := <-ended
			fmt.Fprintf(log, "node: %s ended (%s); it is started again\n", p.name, how)
			time.Sleep(time.Second)
			if ended, err = s.start(path, p.args, log); err != nil {
				fmt.Fprintf(log, "node: start %s: %v\n", p.name, err)
				return
			}
		}
	}()
	return nil
}

// apiReady returns once the API server serves.
func (n *Node) apiReady(ctx context.Context) error {
	pair, err := tls.LoadX509KeyPair(n.pki("admin.crt"), n.pki("admin.key"))
	if err != nil {
		return fmt.Errorf("read the administrator's certificate: %w", err)
	}
	ca, err := os.ReadFile(n.pki("ca.crt"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return errors.New("the authority's certificate is not PEM")
	}
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
	}}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, apiServer+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("it answers %s", resp.Status)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the API server: %w", err)
		case <-tick.C:
		}
	}
}
