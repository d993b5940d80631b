package uninstall

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/credentials/issuer"
	"github.com/sandlane/sandlane/test/bubble"
)

const system = "sandlane-system"

func newClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

func sandbox(name string) *v1alpha1.Sandbox {
	return &v1alpha1.Sandbox{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-" + "x", Finalizers: []string{v1alpha1.FinalizerSandbox}},
		Spec:       v1alpha1.SandboxSpec{Namespace: "default", Pool: "p"},
	}
}

func pool() *v1alpha1.SandboxPool {
	return &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}, Spec: v1alpha1.SandboxPoolSpec{Replicas: 3}}
}

func poolPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "p-1", Labels: map[string]string{v1alpha1.LabelPool: "p"}, Finalizers: []string{v1alpha1.FinalizerPod},
	}}
}

// A sandbox that lives is not ended, and its pool is not emptied, unless that is
// allowed.
func TestEmptyRefuses(t *testing.T) {
	ended := sandbox("ended")
	ended.Spec.End = &v1alpha1.End{Reason: v1alpha1.EndReleased}
	c := newClient(t, sandbox("lives"), ended, pool(), poolPod())
	if err := Empty(t.Context(), Options{Client: c}); !errors.Is(err, ErrLive) || !strings.Contains(err.Error(), "(1)") {
		t.Fatalf("Empty: %v, want it refused for one sandbox", err)
	}
	var p v1alpha1.SandboxPool
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(pool()), &p); err != nil || p.Spec.Replicas != 3 {
		t.Errorf("the pool has %d replicas, %v; want 3", p.Spec.Replicas, err)
	}
	for _, name := range []string{"lives", "ended"} {
		var s v1alpha1.Sandbox
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, &s); err != nil || s.DeletionTimestamp != nil {
			t.Errorf("sandbox %s: %v, deleted at %v; want it left alone", name, err, s.DeletionTimestamp)
		}
	}
}

// A sandbox and a snapshot that are made once the pools are being emptied are neither ended nor
// a reason to stop halfway: Empty waits until they are gone.
func TestEmptyWaitsForWhatIsMadeMeanwhile(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		plain := newClient(t, pool(), poolPod())
		checkpoint := func(name string, cause v1alpha1.CheckpointCause) *v1alpha1.Checkpoint {
			return &v1alpha1.Checkpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: v1alpha1.CheckpointSpec{Cause: cause, SandboxID: "late"}}
		}
		late := []client.Object{sandbox("late"), checkpoint("snapshot", v1alpha1.CheckpointSnapshot), checkpoint("pause", v1alpha1.CheckpointPause)}
		c := interceptor.NewClient(plain.(client.WithWatch), interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				for _, l := range late {
					if err := c.Create(ctx, l); err != nil {
						t.Error(err)
					}
				}
				return c.Patch(ctx, o, p, opts...)
			},
		})
		var said []string
		done := make(chan error, 1)
		go func() {
			done <- Empty(t.Context(), Options{Client: c, Progress: func(line string) { said = append(said, line) }})
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		var p v1alpha1.SandboxPool
		if err := plain.Get(t.Context(), client.ObjectKeyFromObject(pool()), &p); err != nil || p.Spec.Replicas != 0 {
			t.Errorf("%d replicas, %v", p.Spec.Replicas, err)
		}
		if last := said[len(said)-1]; !strings.Contains(last, "1 sandboxes and 1 pods") || !strings.HasSuffix(last, "uninstall empty --delete-checkpoints --end-sandboxes") {
			t.Errorf("said %q", said)
		}
		for _, l := range late {
			if err := plain.Get(t.Context(), client.ObjectKeyFromObject(l), l); err != nil || l.GetDeletionTimestamp() != nil {
				t.Errorf("%T: %v, deleted at %v", l, err, l.GetDeletionTimestamp())
			}
			l.SetFinalizers(nil)
			if err := errors.Join(plain.Update(t.Context(), l), plain.Delete(t.Context(), l)); err != nil {
				t.Error(err)
			}
		}
		pod := poolPod()
		if err := errors.Join(plain.Get(t.Context(), client.ObjectKeyFromObject(pod), pod), func() error {
			pod.Finalizers = nil
			return plain.Update(t.Context(), pod)
		}(), plain.Delete(t.Context(), pod)); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Empty waits for the controller, which takes the finalizers off.
func TestEmptyWaitsForTheController(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newClient(t, sandbox("lives"), pool(), poolPod())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := Empty(ctx, Options{Client: c, EndSandboxes: true}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 sandboxes and 1 pods") {
			t.Errorf("without a controller: %v, want what is left after a minute", err)
		}
		done := make(chan error, 1)
		go func() { done <- Empty(t.Context(), Options{Client: c, EndSandboxes: true}) }()
		synctest.Wait()
		var s v1alpha1.Sandbox
		var p v1alpha1.SandboxPool
		if err := errors.Join(c.Get(t.Context(), client.ObjectKey{Name: "lives"}, &s), c.Get(t.Context(), client.ObjectKeyFromObject(pool()), &p)); err != nil {
			t.Fatal(err)
		}
		if s.Spec.End == nil || s.DeletionTimestamp == nil || p.Spec.Replicas != 0 {
			t.Errorf("end %v, deleted at %v, %d replicas; want all ended", s.Spec.End, s.DeletionTimestamp, p.Spec.Replicas)
		}
		for _, obj := range []client.Object{&s, poolPod()} {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
				t.Fatal(err)
			}
			controllerutil.RemoveFinalizer(obj, v1alpha1.FinalizerSandbox)
			controllerutil.RemoveFinalizer(obj, v1alpha1.FinalizerPod)
			if err := errors.Join(c.Update(t.Context(), obj), client.IgnoreNotFound(c.Delete(t.Context(), obj))); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// An env would give its pools their replicas back.
func TestEmptyTakesReplicasFromEnvs(t *testing.T) {
	e := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}, Spec: v1alpha1.SandboxEnvSpec{
		Autoscaling: &v1alpha1.EnvAutoscaling{Enabled: true},
		Clusters:    []v1alpha1.EnvCluster{{ClusterID: "local", Members: []v1alpha1.EnvMember{{Name: "p", Spec: v1alpha1.EnvMemberSpec{Replicas: new(int32)}}, {Name: "q"}}}},
	}}
	*e.Spec.Clusters[0].Members[0].Spec.Replicas = 4
	c := newClient(t, e, pool())
	var said []string
	if err := Empty(t.Context(), Options{Client: c, Progress: func(line string) { said = append(said, line) }}); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(said, "env default/e asks for no replicas now, and is not scaled any more; it asked for 4 of p, and was scaled") {
		t.Errorf("said %q", said)
	}
	var p v1alpha1.SandboxPool
	if err := errors.Join(c.Get(t.Context(), client.ObjectKeyFromObject(e), e), c.Get(t.Context(), client.ObjectKeyFromObject(pool()), &p)); err != nil {
		t.Fatal(err)
	}
	for _, m := range e.Spec.Clusters[0].Members {
		if m.Spec.Replicas == nil || *m.Spec.Replicas != 0 {
			t.Errorf("the env asks for %v replicas of %s", m.Spec.Replicas, m.Name)
		}
	}
	if e.Spec.Autoscaling.Enabled || p.Spec.Replicas != 0 {
		t.Errorf("autoscaling %v, %d replicas of the pool", e.Spec.Autoscaling.Enabled, p.Spec.Replicas)
	}
}

// A lease goes only after the last pod of a gateway, and others' leases stay.
func TestLeasesWaitForPods(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: system, Name: name} }
		gateway := &coordinationv1.Lease{ObjectMeta: meta("g")}
		gateway.Labels = map[string]string{v1alpha1.LabelGateway: "true"}
		pod := &corev1.Pod{ObjectMeta: meta("draining")}
		pod.Labels = map[string]string{labelApp: appGateway}
		c := newClient(t, gateway, pod, &coordinationv1.Lease{ObjectMeta: meta(ControllerLease)}, &coordinationv1.Lease{ObjectMeta: meta("other")},
			&corev1.Secret{ObjectMeta: meta("token-seed")}, &corev1.Secret{ObjectMeta: meta(issuer.AuthoritySecret)}, &corev1.Secret{ObjectMeta: meta("mine")})
		leases := func() (names []string) {
			var list coordinationv1.LeaseList
			if err := c.List(t.Context(), &list); err != nil {
				t.Fatal(err)
			}
			for i := range list.Items {
				names = append(names, list.Items[i].Name)
			}
			return names
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := Leases(ctx, Options{Client: c, Namespace: system}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "draining") || len(leases()) != 3 {
			t.Errorf("beside a pod that drains: %v, leases %v; want all left", err, leases())
		}
		if err := c.Delete(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if err := Leases(t.Context(), Options{Client: c, Namespace: system}); err != nil || !slices.Equal(leases(), []string{"other"}) {
			t.Errorf("Leases: %v; left %v, want the other alone", err, leases())
		}
		var secrets corev1.SecretList
		if err := c.List(t.Context(), &secrets); err != nil || len(secrets.Items) != 2 {
			t.Errorf("%d Secrets are left, %v; want the seed and the other", len(secrets.Items), err)
		}
		if err := Leases(t.Context(), Options{Client: c, Namespace: system, Keys: true}); err != nil {
			t.Fatal(err)
		}
		if err := c.List(t.Context(), &secrets); err != nil || len(secrets.Items) != 1 {
			t.Errorf("with Keys %d Secrets are left, %v; want the other", len(secrets.Items), err)
		}
	})
}
