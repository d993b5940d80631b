package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// bootFile is the file with which Start passes the Node to init.
const bootFile = "boot.json"

// boot is the contents of that file.
type boot struct {
	Name, Bin, Assets, PauseImage string
}

// writeFiles writes all files that the programs read.
func (n *Node) writeFiles() error {
	for _, dir := range []string{"registries/" + Registry, "pki", "log", "proc", "cni/net.d", "cni/ipam", "kubelet", "pods", "volumeplugins", "etcd"} {
		if err := os.MkdirAll(n.file(dir), 0o755); err != nil {
			return err
		}
	}
	if err := n.writePKI(); err != nil {
		return err
	}
	text, err := json.Marshal(boot{Name: n.Name, Bin: n.o.Bin, Assets: n.o.Assets, PauseImage: n.o.PauseImage})
	if err != nil {
		return err
	}
	for name, content := range map[string]string{
		bootFile:                                 string(text),
		"kubelet.yaml":                           n.kubeletConfig(),
		"containerd.toml":                        n.containerdConfig(),
		"cni/net.d/10-node.conflist":             n.networkConfig(),
		"registries/" + Registry + "/hosts.toml": fmt.Sprintf("server = %q\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", "http://"+Registry, "http://"+Registry),
	} {
		if err := os.WriteFile(n.file(name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) kubeconfig(client string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: node, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: node, user: {client-certificate: %q, client-key: %q}}]
contexts: [{name: node, context: {cluster: node, user: node}}]
current-context: node
`, apiServer, n.pki("ca.crt"), n.pki(client+".crt"), n.pki(client+".key"))
}

// kubeletConfig is the kubelet's configuration. A full disk evicts no pod and removes no image. A pulled image may have been
// imported under another name, which stays valid. If the memory of a container is used up,
// one of its processes ends and not all, and the delays before restarts are short, as
// docs/operations.md asks of nodes.
func (n *Node) kubeletConfig() string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /%s
enforceNodeAllocatable: []
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {anonymous: {enabled: false}, x509: {clientCAFile: %q}, webhook: {enabled: true}}
authorization: {mode: Webhook}
podLogsDir: %q
volumePluginDir: %q
failSwapOn: false
singleProcessOOMKill: true
imagePullCredentialsVerificationPolicy: NeverVerify
crashLoopBackOff: {maxContainerRestartPeriod: 1s}
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi}
nodeStatusUpdateFrequency: 2s
`, n.Name, n.pki("ca.crt"), n.file("pods"), n.file("volumeplugins")) + n.clusterDNS()
}

// clusterDNS is the kubelet's configuration of pods' name server.
func (n *Node) clusterDNS() string {
	if n.o.NameServer == "" {
		return ""
	}
	return fmt.Sprintf("clusterDNS: [%s]\nclusterDomain: cluster.local\n", n.o.NameServer)
}

// containerdConfig is containerd's configuration. It does not lower oom scores, since a root
// without CAP_SYS_RESOURCE cannot.
func (n *Node) containerdConfig() string {
	return fmt.Sprintf(`version = 3
root = %q
state = "/run/containerd/state"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins.'io.containerd.internal.v1.opt']
  path = %q
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = %q
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = %q
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [%q]
    conf_dir = %q
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = false
      BinaryName = "runc"
`, n.file("containerd"), n.file("opt"), n.o.PauseImage, n.file("registries"), filepath.Join(n.o.Bin, "cni"), n.file("cni", "net.d"))
}

// networkConfig configures the plugin ptp, with which every packet is routed.
func (n *Node) networkConfig() string {
	return fmt.Sprintf(`{"cniVersion":"1.0.0","name":"node","plugins":[{"type":"ptp","ipMasq":false,"ipam":{"type":"host-local",
 "ranges":[[{"subnet":%q}]],"routes":[{"dst":"0.0.0.0/0"}],"dataDir":%q}}]}
`, podRange, n.file("cni", "ipam"))
}
