package reconcilers_test

import (
	"fmt"
	"os"
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
// together, and what it writes; and beside it the same pools without envs, which is what
// they cost of themselves. With SANDLANE_SCALE=full it takes four minutes; else it is a
// tenth of the envs, for a few seconds.
func BenchmarkSettledEnvs(b *testing.B) {
	n := 100
	if os.Getenv("SANDLANE_SCALE") == "full" {
		n = 1000
	}
	b.Run("pools-alone", func(b *testing.B) {
		settledWorld(b, func(w *world, template string, i int) client.Object {
			p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: fmt.Sprintf("p-%d", i)}}
			p.Spec.TemplateRef = &v1alpha1.TemplateRef{Name: template}
			return p
		}, n)
	})
	b.Run("envs", func(b *testing.B) {
		settledWorld(b, func(w *world, template string, i int) client.Object {
			e := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: fmt.Sprintf("e-%d", i)}}
			e.Spec.TemplateRef.Name = template
			e.Spec.Clusters = []v1alpha1.EnvCluster{{ClusterID: "local", Members: []v1alpha1.EnvMember{member(fmt.Sprintf("p-%d", i), 0)}}}
			e.Spec.Autoscaling = &v1alpha1.EnvAutoscaling{Enabled: true, Groups: []v1alpha1.ScalingGroup{{Name: "default"}}}
			return e
		}, n)
	})
}

// settledWorld makes n objects, waits until each has a pool that was looked at and nothing
// is written any more, and reports what the controller costs then.
func settledWorld(b *testing.B, object func(w *world, template string, i int) client.Object, n int) {
	window, pause := 24*time.Second, time.Minute // each object is looked at twice at least
	if n < 1000 {
		window, pause = 3*time.Second, 0
	}
	var writes atomic.Int64
	w := newWorldAlone(b, counted(&writes), sizedBy(&sizing{known: true}))
	template := w.template()
	for i := range n {
		if err := w.c.Create(b.Context(), object(w, template, i)); err != nil {
			b.Fatal(err)
		}
	}
	kubetest.Within(b, 5*time.Minute, "all pools to be looked at", func() error {
		var all v1alpha1.SandboxPoolList
		if err := w.c.List(b.Context(), &all, client.InNamespace(w.ns)); err != nil {
			return err
		}
		seen := 0
		for i := range all.Items {
			if all.Items[i].Status.ObservedGeneration == all.Items[i].Generation {
				seen++
			}
		}
		if seen != n {
			return fmt.Errorf("%d are", seen)
		}
		return nil
	})
	w.settled(&writes)
	<-time.After(pause) // the autoscaler looks less often at what does not change
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
