package reconcilers_test

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// BenchmarkSettledEnvs is what a controller costs whose thousand envs ask for nothing, each
// with autoscaling and a pool without pods: its share of one processor, all reconcilers
// together, and what it writes.
func BenchmarkSettledEnvs(b *testing.B) {
	const n, window = 1000, 24 * time.Second // each env is looked at twice at least
	var writes atomic.Int64
	w := newWorldAlone(b, counted(&writes), sizedBy(&sizing{known: true}))
	template := w.template()
	for i := range n {
		e := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: fmt.Sprintf("e-%d", i)}}
		e.Spec.TemplateRef.Name = template
		e.Spec.Clusters = []v1alpha1.EnvCluster{{ClusterID: "local", Members: []v1alpha1.EnvMember{member(fmt.Sprintf("p-%d", i), 0)}}}
		e.Spec.Autoscaling = &v1alpha1.EnvAutoscaling{Enabled: true, Groups: []v1alpha1.ScalingGroup{{Name: "default"}}}
		if err := w.c.Create(b.Context(), e); err != nil {
			b.Fatal(err)
		}
	}
	kubetest.Eventually(b, 5*time.Minute, "all envs to be looked at", func() error {
		var all v1alpha1.SandboxEnvList
		if err := w.c.List(b.Context(), &all, client.InNamespace(w.ns)); err != nil {
			return err
		}
		seen := 0
		for i := range all.Items {
			if all.Items[i].Status.Members == 1 {
				seen++
			}
		}
		if seen != n {
			return fmt.Errorf("%d are", seen)
		}
		return nil
	})
	w.settled(&writes)
	rounds, written, used := 0, int64(0), time.Duration(0)
	for b.Loop() {
		before, began := writes.Load(), processorTime(b)
		<-time.After(window)
		rounds, written, used = rounds+1, written+writes.Load()-before, used+processorTime(b)-began
	}
	b.ReportMetric(100*used.Seconds()/(window.Seconds()*float64(rounds)), "%core")
	b.ReportMetric(float64(written)/float64(rounds), "writes")
}

// processorTime is what this process has used so far: the controller, and little besides.
func processorTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
