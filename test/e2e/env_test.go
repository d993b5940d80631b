package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// env makes an env of pools that keep no pods, each with its maxPods.
func env(t *testing.T, ns string, members map[string]int32) {
	t.Helper()
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: *stack.EchoPool(ns, "x", 0).Spec.Template}
	e := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "env"}}
	e.Spec.TemplateRef.Name, e.Spec.FirstRequest = ns, &v1alpha1.FirstRequest{Access: v1alpha1.AccessPublic}
	cluster := v1alpha1.EnvCluster{ClusterID: "local"}
	for name, most := range members {
		none := int32(0)
		cluster.Members = append(cluster.Members, v1alpha1.EnvMember{Name: name, Spec: v1alpha1.EnvMemberSpec{Replicas: &none, MaxPods: most}})
	}
	e.Spec.Clusters = []v1alpha1.EnvCluster{cluster}
	for _, o := range []client.Object{template, e} {
		if err := shared.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = shared.Client.Delete(context.Background(), template) })
	for _, m := range cluster.Members {
		p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: m.Name}}
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(e, v1alpha1.GroupVersion.WithKind("SandboxEnv"))}
		p.Spec = v1alpha1.SandboxPoolSpec{Replicas: 0, MaxPods: m.Spec.MaxPods, TemplateRef: &v1alpha1.TemplateRef{Name: ns}, FirstRequest: e.Spec.FirstRequest}
		if err := shared.Client.Create(t.Context(), p); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

// First requests name an env of two members that have no pods, one of which may have
// few: all are served, each by one pod, and the sandboxes say where they come from.
func TestFirstRequestsOfAnEnv(t *testing.T) {
	ns := shared.Namespace(t)
	env(t, ns, map[string]int32{"few": 5, "many": 100})
	const n = 60
	var requests []stack.Request
	for i := range n {
		requests = append(requests, stack.Request{ID: fmt.Sprintf("env-%d", i), Header: map[string]string{"X-Sandbox-Env": ns + "/env"}})
	}
	began, pods := time.Now(), map[string]bool{}
	for _, r := range burst(t, requests) {
		if r.err != nil || r.answer.Echo == nil {
			t.Errorf("%s: %v, %v", r.id, r.answer, r.err)
			continue
		}
		pods[r.answer.Echo.PodUID] = true
	}
	t.Logf("%d requests in %v", n, time.Since(began).Round(time.Millisecond))
	if len(pods) != n && !t.Failed() {
		t.Errorf("%d pods answered for %d sandboxes", len(pods), n)
	}
	members := map[string]int{}
	for i := range n {
		s := &v1alpha1.Sandbox{}
		if err := shared.Client.Get(t.Context(), client.ObjectKey{Name: fmt.Sprintf("env-%d", i)}, s); err != nil {
			t.Fatal(err)
		}
		if s.Spec.Env != "env" {
			t.Errorf("%s is of env %q", s.Name, s.Spec.Env)
		}
		members[s.Spec.Pool]++
	}
	if members["few"] > 5 || members["few"]+members["many"] != n {
		t.Errorf("sandboxes by member: %v", members)
	}
	t.Logf("by member: %v", members)
	for _, pod := range shared.PodsOf(t, ns) {
		if pod.Labels[v1alpha1.LabelSandboxID] != "" && pod.Labels[v1alpha1.LabelEnv] != "env" {
			t.Errorf("pod %s has no label of its env", pod.Name)
		}
	}
}
