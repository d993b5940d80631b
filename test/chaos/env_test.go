package chaos

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/stack"
)

// env makes an env "env" whose members a and b each keep that many idle pods.
func env(t *testing.T, ns string, replicas int32) {
	t.Helper()
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: *stack.EchoPool(ns, "x", 0).Spec.Template}
	template.Spec.IdleTimeout = &metav1.Duration{}
	e := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "env"}}
	e.Spec.TemplateRef.Name, e.Spec.FirstRequest = ns, &v1alpha1.FirstRequest{Access: v1alpha1.AccessPublic}
	e.Spec.Clusters = []v1alpha1.EnvCluster{{ClusterID: "local"}}
	for i, name := range []string{"a", "b"} {
		e.Spec.Clusters[0].Members = append(e.Spec.Clusters[0].Members, v1alpha1.EnvMember{
			Name: name, Spec: v1alpha1.EnvMemberSpec{Replicas: &replicas},
			Config: v1alpha1.EnvMemberConfig{Priority: int32(i), ScaleUpPriority: int32(i)}, //nolint:gosec // 0 or 1
		})
	}
	for _, o := range []client.Object{template, e} {
		if err := shared.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		_ = shared.Client.Delete(context.Background(), e) // before its pools, which it would make again
		_ = shared.Client.Delete(context.Background(), template)
	})
	shared.Eventually(t, time.Minute, "the pools of the members", func() (bool, string) {
		var pools v1alpha1.SandboxPoolList
		err := shared.Client.List(t.Context(), &pools, client.InNamespace(ns))
		return len(pools.Items) == 2, fmt.Sprint(len(pools.Items), err)
	})
	for _, name := range []string{"a", "b"} {
		shared.WaitIdle(t, ns, name, int(replicas))
	}
}

// waiting is how many claims wait at the members, as their pools say.
func waiting(t *testing.T, ns string) (n int) {
	t.Helper()
	var pools v1alpha1.SandboxPoolList
	if err := shared.Client.List(t.Context(), &pools, client.InNamespace(ns)); err != nil {
		t.Error(err)
	}
	for i := range pools.Items {
		n += int(pools.Items[i].Status.WaitingClaims)
	}
	return n
}

// The gateway at which all first requests of an env wait is killed. When the clients repeat
// their requests, also at other gateways, each sandbox gets one pod, and no claim is lost or
// made twice.
func TestGatewayKilledWithAllThatWait(t *testing.T) {
	const n, rounds = 20, 3
	ns := shared.Namespace(t)
	env(t, ns, 0)
	l := newLoad(t, "")
	l.env = ns + "/env"
	met, atOnce := 0, 0
	for round := range rounds {
		i := round % len(shared.Up.Gateways)
		g, pid := shared.Up.Gateways[i], gatewayPID(t, i, 0)
		answers := make([]stack.Answer, n)
		var asked sync.WaitGroup
		for k := range n {
			c := newHTTP(t)
			asked.Go(func() { answers[k] = l.ask(c, g, fmt.Sprintf("waits-%d-%d", round, k)) })
		}
		shared.Eventually(t, 20*time.Second, "claims to wait at the members", func() (bool, string) {
			w := waiting(t, ns)
			met = max(met, w)
			return w > n/2, fmt.Sprint(w)
		})
		signal(t, pid, syscall.SIGKILL)
		asked.Wait()
		for _, a := range answers {
			if a.Echo != nil {
				atOnce++
			}
		}
		for k := range n {
			onePod(t, l, fmt.Sprintf("waits-%d-%d", round, k))
		}
		for k := range n {
			if err := writes.EndSandbox(t.Context(), shared.Client, fmt.Sprintf("waits-%d-%d", round, k), v1alpha1.EndReleased, "make room"); err != nil {
				t.Fatal(err)
			}
		}
		gatewayPID(t, i, pid)
	}
	l.judge()
	t.Logf("%d kills with up to %d of %d claims waiting; %d requests were answered all the same; each sandbox has one pod", rounds, met, n, atOnce)
	if atOnce == n*rounds {
		t.Error("the kills met no request that waited")
	}
}

// The controller is killed while the pool of a removed member drains: the next controller
// continues, ends no sandbox of the pool, and deletes the pool after its last sandbox.
func TestControllerKilledWhileAMemberDrains(t *testing.T) {
	ns := shared.Namespace(t)
	env(t, ns, 2)
	l := newLoad(t, "")
	l.env = ns + "/env"
	c, g := newHTTP(t), shared.Up.Gateways[0]
	for _, id := range []string{"drains-1", "drains-2"} {
		if a := l.ask(c, g, id); a.Echo == nil {
			t.Fatalf("%s: %v", id, a)
		}
		if s, _ := shared.Sandbox(t, id); s.Spec.Pool != "a" {
			t.Fatalf("%s is on a pod of %q", id, s.Spec.Pool)
		}
	}
	l.hammer(g, 50*time.Millisecond, func() string { return "drains-1" }, nil)
	pool := &v1alpha1.SandboxPool{}
	read := func() error { return shared.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "a"}, pool) }
	kill := func() {
		t.Helper()
		pid := controllerPID(t, 0)
		if err := signalOurs(pid, "controller", syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		controllerPID(t, pid)
	}
	e := &v1alpha1.SandboxEnv{}
	if err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "env"}, e); err != nil {
		t.Fatal(err)
	}
	base := e.DeepCopy()
	e.Spec.Clusters[0].Members = e.Spec.Clusters[0].Members[1:]
	if err := shared.Client.Patch(t.Context(), e, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}
	shared.Eventually(t, time.Minute, "the pool to drain", func() (bool, string) {
		err := read()
		return err == nil && pool.Annotations[v1alpha1.AnnotationDraining] != "", fmt.Sprint(err)
	})
	kill()
	if err := writes.EndSandbox(t.Context(), shared.Client, "drains-2", v1alpha1.EndReleased, "test"); err != nil {
		t.Fatal(err)
	}
	shared.Eventually(t, time.Minute, "all pods but one to go", func() (bool, string) {
		n := 0
		for _, pod := range shared.PodsOf(t, ns) {
			if pod.Labels[v1alpha1.LabelPool] == "a" {
				n++
			}
		}
		return n == 1, fmt.Sprint(n)
	})
	if err := read(); err != nil || pool.DeletionTimestamp != nil {
		t.Errorf("the pool went before its last sandbox: %v", err)
	}
	if a := l.ask(c, g, "after"); a.Echo == nil {
		t.Errorf("a first request while a member drains: %v", a)
	}
	kill()
	if s, found := shared.Sandbox(t, "drains-1"); !found || s.Spec.End != nil {
		t.Errorf("the last sandbox was ended: %+v", s.Spec.End)
	}
	if err := writes.EndSandbox(t.Context(), shared.Client, "drains-1", v1alpha1.EndReleased, "test"); err != nil {
		t.Fatal(err)
	}
	shared.Eventually(t, time.Minute, "the pool to be deleted", func() (bool, string) {
		err := read()
		return apierrors.IsNotFound(err), fmt.Sprintf("%+v, %v", pool.Status, err)
	})
	l.judge()
}
