package main

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// Of several controllers one leads and the others do nothing, without a flag that
// says so. One that is told to stop gives the lease back, so the next leads while it
// would still have counted; one that is killed is waited for.
func TestLeaderElection(t *testing.T) {
	t.Parallel() // it waits more than it works
	e := &election{t: t, api: kubetest.Client(t), namespace: kubetest.Namespace(t), kubeconfig: writeKubeconfig(t)}
	first := e.start()
	held := e.leads(first)
	second := e.start()
	e.works()
	e.waits(second)
	length := time.Duration(*held.Spec.LeaseDurationSeconds) * time.Second
	if length != electionLease {
		t.Errorf("the lease is for %v, want %v", length, electionLease)
	}

	last := e.lease().Spec.RenewTime
	first.stop(t, syscall.SIGTERM)
	took := e.leads(second).Spec.AcquireTime.Sub(last.Time)
	t.Logf("told to stop, a leader was followed %v after a renewal, of a lease of %v", took.Round(time.Millisecond), length)
	if took >= length {
		t.Error("it did not give its lease back")
	}

	third := e.start()
	e.works()
	e.waits(third)
	second.stop(t, syscall.SIGKILL)
	last = e.lease().Spec.RenewTime
	took = e.leads(third).Spec.AcquireTime.Sub(last.Time)
	t.Logf("killed, a leader was followed %v after its last renewal, of a lease of %v", took.Round(time.Millisecond), length)
	if took < length {
		t.Error("that is within its lease")
	}
}

// election is one namespace with controllers and something to do for them.
type election struct {
	t          *testing.T
	api        client.Client
	namespace  string
	kubeconfig string
	pools      int
}

// candidate is one of several controllers.
type candidate struct {
	*child
	metrics string
}

func (e *election) start() candidate {
	e.t.Helper()
	address := freeAddress(e.t)
	c := candidate{metrics: "http://" + address + "/metrics", child: startChild(e.t, "controller",
		"--kubeconfig", e.kubeconfig, "--system-namespace", e.namespace, "--metrics-address", address)}
	kubetest.Eventually(e.t, "a candidate", func() error {
		_, _, err := c.state()
		if code, _, probe := fetch(strings.TrimSuffix(c.metrics, "metrics") + "readyz"); code != http.StatusOK {
			err = errors.Join(err, probe, fmt.Errorf("/readyz answers %d", code))
		}
		return errors.Join(err, c.running())
	})
	return c
}

var (
	leadsLine     = regexp.MustCompile(`(?m)^leader_election_master_status\{name="sandlane-controller"\} (\d)`)
	reconcileLine = regexp.MustCompile(`(?m)^controller_runtime_reconcile_total\{.*\} [1-9]`)
)

// state reads from its metrics whether it leads, and whether it has ever done
// anything. It is an error if it is no candidate.
func (c candidate) state() (leads, worked bool, err error) {
	_, text, err := fetch(c.metrics)
	if err != nil {
		return false, false, err
	}
	status := leadsLine.FindStringSubmatch(text)
	if status == nil {
		return false, false, errors.New("it is no candidate")
	}
	return status[1] == "1", reconcileLine.MatchString(text), nil
}

// leads waits until a candidate leads and does its work, and returns the lease as
// it stood when it led.
func (e *election) leads(c candidate) *coordinationv1.Lease {
	e.t.Helper()
	kubetest.Within(e.t, electionLease+time.Minute, "a leader", func() error {
		if err := c.running(); err != nil {
			e.t.Fatal(err)
		}
		leads, _, err := c.state()
		if err == nil && !leads {
			err = errors.New("it does not lead")
		}
		return err
	})
	held := e.lease()
	e.works()
	return held
}

// works gives the leader a pool that wants a pod, and waits until it has one.
func (e *election) works() {
	e.t.Helper()
	e.pools++
	pool := &v1alpha1.SandboxPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: fmt.Sprint("pool-", e.pools)},
		Spec: v1alpha1.SandboxPoolSpec{
			Replicas:       1,
			StartupTimeout: &metav1.Duration{Duration: time.Hour}, // no node runs its pods
			Template: &v1alpha1.SandboxTemplateSpec{Template: corev1.PodTemplateSpec{
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "i"}}},
			}},
		},
	}
	if err := e.api.Create(e.t.Context(), pool); err != nil {
		e.t.Fatal(err)
	}
	kubetest.Eventually(e.t, "the leader to make a pod", func() error {
		var pods corev1.PodList
		if err := e.api.List(e.t.Context(), &pods, client.InNamespace(e.namespace)); err != nil {
			return err
		}
		if len(pods.Items) != e.pools {
			return fmt.Errorf("there are %d pods, want %d", len(pods.Items), e.pools)
		}
		return nil
	})
}

// waits checks that a candidate neither leads nor has done anything.
func (e *election) waits(c candidate) {
	e.t.Helper()
	if leads, worked, err := c.state(); err != nil || leads || worked {
		e.t.Errorf("beside a leader one leads: %v, works: %v, %v", leads, worked, err)
	}
}

func (e *election) lease() *coordinationv1.Lease {
	e.t.Helper()
	var l coordinationv1.Lease
	if err := e.api.Get(e.t.Context(), client.ObjectKey{Namespace: e.namespace, Name: "sandlane-controller"}, &l); err != nil {
		e.t.Fatal(err)
	}
	return &l
}

// writeKubeconfig writes the test API server's configuration to a file.
func writeKubeconfig(t *testing.T) string {
	t.Helper()
	rest := kubetest.Config(t)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: rest.Host, CertificateAuthorityData: rest.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: rest.CertData, ClientKeyData: rest.KeyData}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "c"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}
