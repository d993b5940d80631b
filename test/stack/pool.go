package stack

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/access"
	"github.com/sandlane/sandlane/api/v1alpha1"
)

// PoolOption changes a pool before it is created.
type PoolOption func(*v1alpha1.SandboxPool)

// WithMaxPods bounds idle and claimed pods together.
func WithMaxPods(n int32) PoolOption {
	return func(p *v1alpha1.SandboxPool) { p.Spec.MaxPods = n }
}

// WithIdleTimeout sets the idle timeout of the pool's sandboxes.
func WithIdleTimeout(d time.Duration) PoolOption {
	return func(p *v1alpha1.SandboxPool) { p.Spec.IdleTimeout = &metav1.Duration{Duration: d} }
}

// WithAccess says who may send a first request; empty means nobody.
func WithAccess(a v1alpha1.FirstRequestAccess) PoolOption {
	return func(p *v1alpha1.SandboxPool) {
		if a == "" {
			p.Spec.FirstRequest = nil
			return
		}
		p.Spec.FirstRequest = &v1alpha1.FirstRequest{Access: a}
	}
}

// EchoPool returns a pool of echo pods that anybody may claim from.
func EchoPool(namespace, name string, replicas int32, opts ...PoolOption) *v1alpha1.SandboxPool {
	field := func(env, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: env, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	p := &v1alpha1.SandboxPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.SandboxPoolSpec{
			Replicas:     replicas,
			FirstRequest: &v1alpha1.FirstRequest{Access: v1alpha1.AccessPublic},
			Template: &v1alpha1.SandboxTemplateSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				Containers: []corev1.Container{{
					Name: "main", Image: "local/echo",
					Ports: []corev1.ContainerPort{{ContainerPort: 8000}},
					Env: []corev1.EnvVar{
						field("POD_NAME", "metadata.name"), field("POD_UID", "metadata.uid"),
						field("POD_NAMESPACE", "metadata.namespace"), field("POD_IP", "status.podIP"),
					},
					ReadinessProbe: &corev1.Probe{
						ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8000)}},
						PeriodSeconds: 1,
					},
				}},
			}}},
		},
	}
	for _, o := range opts {
		o(p)
	}
	return p
}

// PoolNamespace makes a namespace that may have pools, with a name that begins so. The
// caller deletes it.
func (s *Stack) PoolNamespace(t testing.TB, begins string) *corev1.Namespace {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: begins, Labels: map[string]string{v1alpha1.LabelPools: v1alpha1.PoolsAllowed},
	}}
	if err := s.Client.Create(t.Context(), ns); err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	var o access.Options
	o.Complete()
	for _, obj := range access.Bindings(o, ns.Name) {
		if err := s.Client.Create(t.Context(), obj); err != nil {
			t.Fatalf("bind what is read in namespace %s: %v", ns.Name, err)
		}
	}
	return ns
}

// Namespace makes a namespace for the test, and deletes it afterwards.
func (s *Stack) Namespace(t testing.TB) string {
	t.Helper()
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(t.Name()))
	if len(clean) > 40 {
		clean = clean[:40]
	}
	ns := s.PoolNamespace(t, strings.Trim(clean, "-")+"-")
	t.Cleanup(func() {
		// The pools go first, so that the next test does not share the machine
		// with pods that are not needed any more.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Client.DeleteAllOf(ctx, &v1alpha1.SandboxPool{}, client.InNamespace(ns.Name)); err != nil {
			t.Errorf("delete the pools of %s: %v", ns.Name, err)
		}
		if err := s.Client.Delete(ctx, ns); err != nil {
			t.Errorf("delete namespace %s: %v", ns.Name, err)
		}
		s.poll(ctx, t, "the pods of "+ns.Name+" to go", func() (bool, string) {
			pods := s.pods(ctx, t, ns.Name)
			return len(pods) == 0, fmt.Sprintf("%d pods left", len(pods))
		})
	})
	return ns.Name
}

// Pool makes an echo pool and waits until all its pods are idle.
func (s *Stack) Pool(t testing.TB, namespace, name string, replicas int32, opts ...PoolOption) {
	t.Helper()
	p := EchoPool(namespace, name, replicas, opts...)
	if err := s.Client.Create(t.Context(), p); err != nil {
		t.Fatalf("create pool %s/%s: %v", namespace, name, err)
	}
	s.WaitIdle(t, namespace, name, int(replicas))
}

// WaitIdle waits until the pool has exactly n idle pods.
func (s *Stack) WaitIdle(t testing.TB, namespace, pool string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	s.poll(ctx, t, fmt.Sprintf("%d idle pods in %s/%s", n, namespace, pool), func() (bool, string) {
		counts := map[v1alpha1.PodPhase]int{}
		for _, p := range s.pods(ctx, t, namespace) {
			if p.Labels[v1alpha1.LabelPool] == pool {
				counts[v1alpha1.PhaseOf(&p)]++
			}
		}
		return counts[v1alpha1.PodIdle] == n, fmt.Sprint(counts)
	})
}

// pods lists the pool pods of a namespace. A failed list is an empty one with
// an error on the test.
func (s *Stack) pods(ctx context.Context, t testing.TB, namespace string) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	if err := s.Client.List(ctx, &list, client.InNamespace(namespace), client.HasLabels{v1alpha1.LabelPool}); err != nil {
		t.Errorf("list pods of %s: %v", namespace, err)
	}
	return list.Items
}

// Eventually waits until cond holds, and fails the test when it does not
// within the timeout. cond says what it saw, for the failure.
func (s *Stack) Eventually(t testing.TB, timeout time.Duration, what string, cond func() (bool, string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	s.poll(ctx, t, what, cond)
}

func (s *Stack) poll(ctx context.Context, t testing.TB, what string, cond func() (bool, string)) {
	t.Helper()
	for first := time.Now(); ; {
		began := time.Now()
		ok, saw := cond()
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s; last seen: %s", what, saw)
		case <-time.After(max(50*time.Millisecond, min(max(4*time.Since(began), began.Sub(first)/4), time.Second/4))): // the stack needs the processors
		}
	}
}

// PodsOf lists the pool pods of a namespace.
func (s *Stack) PodsOf(t testing.TB, namespace string) []corev1.Pod {
	t.Helper()
	return s.pods(t.Context(), t, namespace)
}
