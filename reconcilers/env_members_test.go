package reconcilers_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/reconcilers/sandboxenv"
	"github.com/sandlane/sandlane/test/kubetest"
)

// TestForeignPool: a pool of a member's name that is not the env's is left alone, until
// it is gone; then the env makes its own.
func TestForeignPool(t *testing.T) {
	w := newWorld(t)
	theirs := w.pool("mine", 1, 0)
	w.env("first", member("shared", 0))
	w.awaitMember("first", "local", "shared", v1alpha1.MemberActive)
	w.env("e", member("mine", 3), member("shared", 3))
	for _, name := range []string{"mine", "shared"} {
		if m := w.awaitMember("e", "local", name, v1alpha1.MemberInconsistent); m.Message == "" {
			t.Errorf("no word about %s", name)
		}
	}
	never(t, time.Second, "a foreign pool was changed", func() bool {
		var p v1alpha1.SandboxPool
		return w.c.Get(t.Context(), client.ObjectKeyFromObject(theirs), &p) != nil || p.Spec.Replicas != 1 || p.Generation != theirs.Generation || len(p.OwnerReferences) > 0
	})
	if meta.IsStatusConditionTrue(w.getEnv("e").Status.Conditions, v1alpha1.EnvConditionTemplateConsistent) {
		t.Error("the env is consistent with a foreign pool")
	}
	if err := w.c.Delete(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	w.awaitMember("e", "local", "mine", v1alpha1.MemberActive)
	w.awaitPool("mine", "of the env", func(p *v1alpha1.SandboxPool) bool { return metav1.IsControlledBy(p, w.getEnv("e")) })
}

// TestRemovedMemberDrains: the pool of a removed member keeps its sandboxes to their
// end, and is deleted then; one that is named again in time stays.
func TestRemovedMemberDrains(t *testing.T) {
	w := newWorld(t)
	w.env("e", member("a", 1), member("b", 1), member("back", 1))
	for _, name := range []string{"a", "b", "back"} {
		w.await(name, v1alpha1.PodIdle, 1)
	}
	s, pod := w.running("a")
	kept, _ := w.running("back")
	w.changeEnv("e", func(e *v1alpha1.SandboxEnv) {
		e.Spec.Clusters[0].Members = e.Spec.Clusters[0].Members[1:2]
	})
	w.awaitMember("e", "local", "a", v1alpha1.MemberDraining)
	w.awaitPool("a", "draining", func(p *v1alpha1.SandboxPool) bool {
		return p.Spec.Replicas == 0 && p.Annotations[v1alpha1.AnnotationDraining] != ""
	})
	w.await("a", v1alpha1.PodIdle, 0)
	w.awaitMember("e", "local", "back", v1alpha1.MemberDraining)
	w.changeEnv("e", func(e *v1alpha1.SandboxEnv) {
		e.Spec.Clusters[0].Members = append(e.Spec.Clusters[0].Members, member("back", 1))
	})
	w.awaitPool("back", "a member again", func(p *v1alpha1.SandboxPool) bool {
		return p.Spec.Replicas == 1 && p.Annotations[v1alpha1.AnnotationDraining] == ""
	})
	never(t, 2*time.Second, "a running sandbox was ended, or its pool deleted", func() bool {
		var p v1alpha1.SandboxPool
		err := w.c.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "a"}, &p)
		return err != nil || p.DeletionTimestamp != nil || w.sandbox(s.Name).Spec.End != nil || w.sandbox(kept.Name).Spec.End != nil
	})
	if err := writes.EndSandbox(t.Context(), w.c, s.Name, v1alpha1.EndReleased, "test"); err != nil {
		t.Fatal(err)
	}
	w.awaitGone(pod)
	kubetest.Eventually(t, "the drained pool gone", func() error {
		err := w.c.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "a"}, &v1alpha1.SandboxPool{})
		if err == nil {
			return errors.New("it is there")
		}
		return client.IgnoreNotFound(err)
	})
	kubetest.Eventually(t, "the status", func() error {
		for _, m := range w.getEnv("e").Status.Clusters[0].ObservedMembers {
			if m.Name == "a" {
				return fmt.Errorf("a drained member is still shown: %+v", m)
			}
		}
		return nil
	})
	if w.sandbox(kept.Name).Spec.End != nil {
		t.Error("the sandbox of a member that came back was ended")
	}
}

// TestTwoClusters: controllers of two clusters that see one env write their own
// pools and segments, and agree on the rest.
func TestTwoClusters(t *testing.T) {
	var writes atomic.Int64
	w := newWorld(t, counted(&writes))
	other := w.second("b", &writes)
	w.env("e", member("a", 1))
	w.changeEnv("e", func(e *v1alpha1.SandboxEnv) {
		e.Spec.Clusters = append(e.Spec.Clusters, v1alpha1.EnvCluster{ClusterID: "b", Members: []v1alpha1.EnvMember{member("far", 0)}},
			v1alpha1.EnvCluster{ClusterID: "c", Members: []v1alpha1.EnvMember{member("nobody", 1)}})
	})
	w.await("a", v1alpha1.PodIdle, 1)
	w.awaitMember("e", "local", "a", v1alpha1.MemberActive)
	w.awaitMember("e", "b", "far", v1alpha1.MemberActive)
	kubetest.Eventually(t, "an idle pod in the status", func() error {
		if s := w.getEnv("e").Status; s.Idle != 1 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	// Both look at the env, and come to agree.
	kubetest.Eventually(t, "three looks of two controllers without a write", func() error {
		before := writes.Load()
		for i := range 3 {
			w.touch("a", fmt.Sprint(before, i))
			w.settled(&writes)
		}
		if n := writes.Load() - before; n != 0 {
			return fmt.Errorf("%d writes", n)
		}
		return nil
	})
	s, generation := w.getEnv("e").Status, w.getEnv("e").Generation
	if len(s.Clusters) != 2 || s.Members != 2 || s.Idle != 1 || !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.EnvConditionReady) || generation != 2 {
		t.Errorf("generation %d, status %+v", generation, s)
	}
	err := w.c.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "nobody"}, &v1alpha1.SandboxPool{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the pool of a cluster without a controller: %v", err)
	}
	// The member of the other cluster is that cluster's to drain.
	other()
	w.changeEnv("e", func(e *v1alpha1.SandboxEnv) {
		e.Spec.Clusters[0].Members = append(e.Spec.Clusters[0].Members, member("more", 0))
	})
	w.awaitMember("e", "local", "more", v1alpha1.MemberActive)
	far := w.awaitPool("far", "there", func(*v1alpha1.SandboxPool) bool { return true })
	if far.DeletionTimestamp != nil || far.Annotations[v1alpha1.AnnotationDraining] != "" {
		t.Errorf("the pool of another cluster was drained: %+v", far.ObjectMeta)
	}
}

// second starts a controller of another cluster that has the env reconciler alone; the
// function returned stops it.
func (w *world) second(clusterID string, writes *atomic.Int64) (stop func()) {
	w.t.Helper()
	cfg := kubetest.Config(w.t)
	kubetest.Scope(cfg, w.ns)
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: kubetest.Scheme(), Logger: w.log.logger(), Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		w.t.Fatal(err)
	}
	var of world
	counted(writes)(&of)
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: kubetest.Scheme(), Cache: &client.CacheOptions{Reader: mgr.GetCache()}})
	if err != nil {
		w.t.Fatal(err)
	}
	r := &sandboxenv.SandboxEnvReconciler{Client: interceptor.NewClient(c, *of.faults), Scheme: mgr.GetScheme(), LocalClusterID: clusterID}
	if err := r.SetupWithManager(mgr, controller.Options{SkipNameValidation: ptr.To(true)}); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("the second manager: %v", err)
		}
		done <- nil
	}
	w.t.Cleanup(stop)
	return stop
}
