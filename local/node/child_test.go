package node

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sandlane/sandlane/test/kubetest"
)

// childOptions are those of a node in a process of its own.
type childOptions struct {
	Kubeconfig, Name, StateDir, Images, HelperDir string
	Subnet                                        netip.Prefix
	Isolation                                     Isolation
}

func runChild(raw string) int {
	var c childOptions
	if err := json.Unmarshal([]byte(raw), &c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_ = os.Unsetenv(nodeChild)
	err := Run(context.Background(), Options{
		Kubeconfig: c.Kubeconfig, Name: c.Name, StateDir: c.StateDir, Subnet: c.Subnet, Isolation: c.Isolation,
		Images: c.Images, HelperDir: c.HelperDir, Ready: func() { fmt.Println("ready") },
	})
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func writeKubeconfig(t testing.TB, cfg *rest.Config, path string) {
	t.Helper()
	out := clientcmdapi.NewConfig()
	out.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	out.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData, Token: cfg.BearerToken}
	out.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	out.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*out, path); err != nil {
		t.Fatal(err)
	}
}

// TestKilledNode kills a node with SIGKILL: no pod process survives it, the
// next node starts the pods again on their addresses, and Cleanup leaves
// nothing.
func TestKilledNode(t *testing.T) {
	for _, isolation := range []Isolation{IsolationFull, IsolationNone} {
		t.Run(string(isolation), func(t *testing.T) {
			n := startNode(t, isolation)
			n.halt(t) // this test's node is a process of its own
			kubeconfig := filepath.Join(n.opts.StateDir, "kubeconfig")
			writeKubeconfig(t, n.opts.RestConfig, kubeconfig)
			raw, err := json.Marshal(childOptions{
				Kubeconfig: kubeconfig, Name: n.opts.Name, StateDir: n.opts.StateDir, Images: n.opts.Images,
				HelperDir: n.opts.HelperDir, Subnet: n.opts.Subnet, Isolation: isolation,
			})
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), nodeChild+"="+string(raw))
			cmd.Stderr = testWriter{t}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
				t.Fatalf("the node said %q, %v", line, err)
			}
			never := func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }
			n.create(t, echoPod("a"), shellPod("b", "sleep 1000 & wait"), shellPod("c", "sleep 1000", never))
			a := n.await(t, "a", "is ready", isReady)
			n.await(t, "b", "is ready", isReady)
			n.await(t, "c", "is ready", isReady)
			if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			kubetest.Eventually(t, "every process of the node is dead", func() error {
				if isolation == IsolationNone {
					killMarked(stateHash(n.opts.StateDir)) // grandchildren: only Cleanup finds them
				}
				for _, l := range leftovers(n.opts.StateDir) {
					if filepath.Base(filepath.Dir(l)) != "pods" && len(l) > 8 && l[:7] == "process" {
						return errors.New(l)
					}
				}
				return nil
			})
			n.start(t)
			again := n.await(t, "a", "runs again", func(p *corev1.Pod) bool {
				return isReady(p) && p.Status.ContainerStatuses[0].RestartCount == 1
			})
			if again.Status.PodIP != a.Status.PodIP {
				t.Errorf("address %s, before the kill %s", again.Status.PodIP, a.Status.PodIP)
			}
			if last := again.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.Reason != "ContainerStatusUnknown" {
				t.Errorf("last state %+v", again.Status.ContainerStatuses[0].LastTerminationState)
			}
			n.await(t, "c", "has failed", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
		})
	}
}
