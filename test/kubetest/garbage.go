package kubetest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sandlane/sandlane/test/orphans"
)

// CollectGarbage runs Kubernetes' garbage collector until the test ends. It works on all
// namespaces, so call it in a test that no other runs beside.
func CollectGarbage(t testing.TB) {
	t.Helper()
	cfg := Config(t)
	to := clientcmdapi.NewConfig()
	to.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData, CertificateAuthority: cfg.CAFile}
	to.AuthInfos["u"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: cfg.CertData, ClientCertificate: cfg.CertFile, ClientKeyData: cfg.KeyData, ClientKey: cfg.KeyFile, Token: cfg.BearerToken,
	}
	to.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	to.CurrentContext = "c"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*to, file); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join(os.Getenv(assetsVariable), "kube-controller-manager"),
		"--kubeconfig="+file, "--leader-elect=false", "--secure-port=0", "--controllers=garbage-collector-controller",
		"--kube-api-qps=200", "--kube-api-burst=400")
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting kube-controller-manager: %v", err)
	}
	forget, err := orphans.Stop("/bin/sh", "-c", `kill -KILL "$1"`, "kill", strconv.Itoa(cmd.Process.Pid))
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if forget != nil {
			forget()
		}
		if t.Failed() {
			t.Logf("kube-controller-manager said:\n%s", said.Bytes()[max(said.Len()-4000, 0):])
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
