package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/stack"
)

// env makes an env "env" of echo pods, which anybody may claim, and waits for the pools
// of its members.
func env(t *testing.T, ns string, members ...v1alpha1.EnvMember) {
	t.Helper()
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: *stack.EchoPool(ns, "x", 0).Spec.Template}
	e := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "env"}}
	e.Spec.TemplateRef.Name, e.Spec.FirstRequest = ns, &v1alpha1.FirstRequest{Access: v1alpha1.AccessPublic}
	e.Spec.Clusters = []v1alpha1.EnvCluster{{ClusterID: "local", Members: members}}
	for _, o := range []client.Object{template, e} {
		if err := shared.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		// The env goes before its pools, which it would make again.
		_ = shared.Client.Delete(context.Background(), e)
		_ = shared.Client.Delete(context.Background(), template)
	})
	shared.Eventually(t, time.Minute, "the pools of the members", func() (bool, string) {
		for _, m := range members {
			p := &v1alpha1.SandboxPool{}
			if err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: m.Name}, p); err != nil {
				return false, err.Error()
			}
			if int(p.Status.Idle) != int(p.Spec.Replicas) {
				return false, fmt.Sprintf("%s has %d idle pods", m.Name, p.Status.Idle)
			}
		}
		return true, ""
	})
}

// member is one with so many replicas, and maxPods unless that is 0; of two that are empty
// the one with the smaller priority is asked first.
func member(name string, replicas, maxPods, priority int32) v1alpha1.EnvMember {
	return v1alpha1.EnvMember{
		Name: name, Spec: v1alpha1.EnvMemberSpec{Replicas: &replicas, MaxPods: maxPods},
		Config: v1alpha1.EnvMemberConfig{Priority: priority, ScaleUpPriority: priority},
	}
}

// ofEnv is the i-th first request by an env.
func ofEnv(ns string, i int) stack.Request {
	return stack.Request{ID: fmt.Sprintf("%s-%d", ns, i), Header: map[string]string{"X-Sandbox-Env": ns + "/env"}}
}

// served checks that each request was answered by a pod of its own, and returns how many
// sandboxes each member has.
func served(t *testing.T, results []result) map[string]int {
	t.Helper()
	pods, members := map[string]bool{}, map[string]int{}
	for _, r := range results {
		if r.err != nil || r.answer.Echo == nil {
			t.Errorf("%s after %v: %v, %v", r.id, r.took.Round(time.Millisecond), r.answer, r.err)
			continue
		}
		pods[r.answer.Echo.PodUID] = true
		s, found := shared.Sandbox(t, r.id)
		if !found || s.Spec.Env != "env" {
			t.Errorf("%s is of env %q", r.id, s.Spec.Env)
		}
		members[s.Spec.Pool]++
	}
	if len(pods) != len(results) && !t.Failed() {
		t.Errorf("%d pods answered for %d sandboxes", len(pods), len(results))
	}
	t.Logf("by member: %v", members)
	return members
}

// First requests name an env of two members that have no pods, one of which may have few:
// all are served, each by one pod, and sandboxes and pods say where they come from. They are
// 200 with SANDLANE_STORM=full: beside other tests so many pods do not start within a
// request's deadline everywhere.
func TestFirstRequestsOfAnEnv(t *testing.T) {
	t.Parallel()
	takeTurn(t)
	n, few := int32(40), int32(8)
	if os.Getenv("SANDLANE_STORM") == "full" {
		n, few = 200, 40
	}
	ns := shared.Namespace(t)
	env(t, ns, member("few", 0, few, 0), member("many", 0, n, 1))
	var requests []stack.Request
	for i := range n {
		requests = append(requests, ofEnv(ns, int(i)))
	}
	began := time.Now()
	results := burst(t, requests)
	t.Logf("%d requests in %v", n, time.Since(began).Round(time.Millisecond))
	if members := served(t, results); members["few"] > int(few) || members["few"] == 0 || members["few"]+members["many"] != int(n) {
		t.Errorf("sandboxes by member: %v", members)
	}
	for _, pod := range shared.PodsOf(t, ns) {
		if pod.Labels[v1alpha1.LabelSandboxID] != "" && pod.Labels[v1alpha1.LabelEnv] != "env" {
			t.Errorf("pod %s has no label of its env", pod.Name)
		}
	}
}

// refusePods has the API server refuse the pods of a pool, as a quota does that is used up.
// A quota itself is of the whole namespace, and so of all members.
func refusePods(t *testing.T, ns, pool string) {
	t.Helper()
	name := ns + "-" + pool
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	policy.Spec.MatchConstraints = &admissionv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
		ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}}},
	}
	forbidden := metav1.StatusReasonForbidden
	policy.Spec.Validations = []admissionv1.Validation{{
		Expression: fmt.Sprintf("!has(object.metadata.labels) || !('%s' in object.metadata.labels) || object.metadata.labels['%s'] != '%s'",
			v1alpha1.LabelPool, v1alpha1.LabelPool, pool),
		Message: "exceeded quota: " + pool, Reason: &forbidden,
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	binding.Spec.PolicyName, binding.Spec.ValidationActions = name, []admissionv1.ValidationAction{admissionv1.Deny}
	for _, o := range []client.Object{policy, binding} {
		if err := shared.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = shared.Client.Delete(context.Background(), o) })
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "probe", Labels: map[string]string{v1alpha1.LabelPool: pool}}}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "local/echo"}}
	shared.Eventually(t, time.Minute, "the policy to refuse pods", func() (bool, string) {
		err := shared.Client.Create(t.Context(), pod.DeepCopy(), client.DryRunAll)
		return apierrors.IsForbidden(err), fmt.Sprint(err)
	})
}

// A member that can get no pods is left for the next one, though it comes first; with
// autoscaling the env says so.
func TestMemberWhosePodsAreRefused(t *testing.T) {
	for name, autoscaled := range map[string]bool{"autoscaled": true, "not autoscaled": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := shared.Namespace(t)
			refusePods(t, ns, "tight")
			env(t, ns, member("tight", 0, 0, 0), member("wide", 0, 0, 1))
			if autoscaled {
				autoscale(t, ns)
			}
			const n = 12
			var requests []stack.Request
			for i := range n {
				requests = append(requests, ofEnv(ns, i))
			}
			if members := served(t, burst(t, requests)); members["wide"] != n {
				t.Errorf("sandboxes by member: %v", members)
			}
			if !autoscaled {
				return
			}
			shared.Eventually(t, time.Minute, "the env to say that the member is saturated", func() (bool, string) {
				e := &v1alpha1.SandboxEnv{}
				if err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "env"}, e); err != nil {
					return false, err.Error()
				}
				for _, c := range e.Status.Clusters {
					for _, m := range c.ObservedMembers {
						if m.Name == "tight" && m.State == v1alpha1.MemberSaturated && m.SaturatedUntil != nil {
							return true, ""
						}
					}
				}
				return false, fmt.Sprintf("%+v", e.Status.Clusters)
			})
		})
	}
}

// changeEnv changes the env as it is now.
func changeEnv(t *testing.T, ns string, how func(*v1alpha1.SandboxEnv)) {
	t.Helper()
	shared.Eventually(t, time.Minute, "the env to be changed", func() (bool, string) {
		e := &v1alpha1.SandboxEnv{}
		err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "env"}, e)
		if err == nil {
			how(e)
			err = shared.Client.Update(t.Context(), e)
		}
		return err == nil, fmt.Sprint(err)
	})
}

func autoscale(t *testing.T, ns string) {
	t.Helper()
	changeEnv(t, ns, func(e *v1alpha1.SandboxEnv) {
		e.Spec.Autoscaling = &v1alpha1.EnvAutoscaling{Enabled: true, Groups: []v1alpha1.ScalingGroup{{Name: "default"}}}
	})
}

// A member is taken out of the env while requests come: none fails, its sandboxes run to
// their end, and then its pool is gone. All but two of the pods are made while their requests
// wait: no more than a busy machine starts in the minute that a request waits.
func TestMemberDeletedUnderLoad(t *testing.T) {
	t.Parallel()
	const n = 16
	ns := shared.Namespace(t)
	env(t, ns, member("goes", 2, 0, 0), member("stays", 0, 0, 1))
	results := make(chan result, n)
	for i := range n {
		if i == n/2 {
			changeEnv(t, ns, func(e *v1alpha1.SandboxEnv) { e.Spec.Clusters[0].Members = e.Spec.Clusters[0].Members[1:] })
		}
		go func() {
			began, r := time.Now(), ofEnv(ns, i)
			a, err := shared.Try(t.Context(), nil, r)
			results <- result{id: r.ID, answer: a, err: err, took: time.Since(began)}
		}()
		<-time.After(50 * time.Millisecond)
	}
	var all []result
	for range n {
		all = append(all, <-results)
	}
	members := served(t, all)
	if members["goes"] == 0 || members["stays"] == 0 || members["goes"]+members["stays"] != n {
		t.Errorf("sandboxes by member: %v", members)
	}
	for _, r := range all {
		if r.answer.Echo == nil {
			continue
		}
		if again := shared.Do(t, nil, stack.Request{ID: r.id}); again.Echo == nil || again.Echo.PodUID != r.answer.Echo.PodUID {
			t.Errorf("%s is answered %v later, was on pod %s", r.id, again, r.answer.Echo.Pod)
		}
	}
	for _, r := range all {
		if s, found := shared.Sandbox(t, r.id); found && s.Spec.Pool == "goes" {
			if err := writes.EndSandbox(t.Context(), shared.Client, r.id, v1alpha1.EndReleased, "test"); err != nil {
				t.Fatal(err)
			}
		}
	}
	shared.Eventually(t, time.Minute, "the pool of the member to be gone", func() (bool, string) {
		p := &v1alpha1.SandboxPool{}
		err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "goes"}, p)
		return apierrors.IsNotFound(err), fmt.Sprintf("%+v, %v", p.Status, err)
	})
}
