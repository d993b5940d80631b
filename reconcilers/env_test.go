package reconcilers_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// upserts counts the looks at envs that succeeded.
type upserts struct{ atomic.Int64 }

func (u *upserts) OnEnvUpsert(*v1alpha1.SandboxEnv) { u.Add(1) }

// counted counts what the controller writes in the configured world.
func counted(writes *atomic.Int64) func(*world) {
	return func(w *world) {
		w.faults = &interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				writes.Add(1)
				return c.Create(ctx, o, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				writes.Add(1)
				return c.Patch(ctx, o, p, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				writes.Add(1)
				return c.Delete(ctx, o, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				writes.Add(1)
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		}
	}
}

// template makes a SandboxTemplate of one-container pods and returns its name.
func (w *world) template() string {
	w.t.Helper()
	t := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: kubetest.Name("t")}, Spec: v1alpha1.SandboxTemplateSpec{
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			NodeName: "node", Containers: []corev1.Container{{Name: "main", Image: "local/echo"}},
		}},
	}}
	if err := w.c.Create(w.t.Context(), t); err != nil {
		w.t.Fatalf("creating a template: %v", err)
	}
	return t.Name
}

func member(name string, replicas int32) v1alpha1.EnvMember {
	return v1alpha1.EnvMember{Name: name, Spec: v1alpha1.EnvMemberSpec{Replicas: &replicas}}
}

// env makes an env with members in the cluster local.
func (w *world) env(name string, members ...v1alpha1.EnvMember) *v1alpha1.SandboxEnv {
	w.t.Helper()
	e := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}, Spec: v1alpha1.SandboxEnvSpec{
		TemplateRef: v1alpha1.TemplateRef{Name: w.template()},
		Clusters:    []v1alpha1.EnvCluster{{ClusterID: "local", Members: members}},
	}}
	if err := w.c.Create(w.t.Context(), e); err != nil {
		w.t.Fatalf("creating env %s: %v", name, err)
	}
	return e
}

// changeEnv changes an env as it is now.
func (w *world) changeEnv(name string, change func(*v1alpha1.SandboxEnv)) {
	w.t.Helper()
	kubetest.Eventually(w.t, "changed env", func() error {
		e := w.getEnv(name)
		change(e)
		return w.c.Update(w.t.Context(), e)
	})
}

func (w *world) getEnv(name string) *v1alpha1.SandboxEnv {
	w.t.Helper()
	e := &v1alpha1.SandboxEnv{}
	if err := w.c.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, e); err != nil {
		w.t.Fatalf("reading env %s: %v", name, err)
	}
	return e
}

// awaitPool waits until a pool is as ok says; it returns it.
func (w *world) awaitPool(name, what string, ok func(*v1alpha1.SandboxPool) bool) *v1alpha1.SandboxPool {
	w.t.Helper()
	p := &v1alpha1.SandboxPool{}
	kubetest.Eventually(w.t, "pool "+name+" "+what, func() error {
		p = &v1alpha1.SandboxPool{}
		if err := w.c.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, p); err != nil {
			return err
		}
		if !ok(p) {
			return fmt.Errorf("labels %v, annotations %v, spec %+v", p.Labels, p.Annotations, p.Spec)
		}
		return nil
	})
	return p
}

// awaitMember waits for a state of a member in a cluster's segment.
func (w *world) awaitMember(env, cluster, name string, state v1alpha1.MemberState) v1alpha1.ObservedMember {
	w.t.Helper()
	var found v1alpha1.ObservedMember
	kubetest.Eventually(w.t, fmt.Sprintf("member %s of %s is %q", name, env, state), func() error {
		e := &v1alpha1.SandboxEnv{}
		if err := w.c.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: env}, e); err != nil {
			return err
		}
		for _, c := range e.Status.Clusters {
			for _, m := range c.ObservedMembers {
				if c.ClusterID == cluster && m.Name == name && m.State == state {
					found = m
					return nil
				}
			}
		}
		return fmt.Errorf("status %+v", e.Status)
	})
	return found
}

// TestEnvMakesItsPools: what the env says becomes pools, drift is stamped back, and an env
// at which nothing is to be done is written nothing for.
func TestEnvMakesItsPools(t *testing.T) {
	var writes atomic.Int64
	var looks upserts
	w := newWorld(t, counted(&writes), func(w *world) { w.options.EnvRouterSync = &looks })
	a := member("a", 2)
	a.Labels, a.Annotations = map[string]string{"tier": "gold"}, map[string]string{"note": "x"}
	a.Spec.IdleTimeout = &metav1.Duration{}
	e := w.env("e", a, member("b", 0))
	pool := w.awaitPool("a", "made", func(*v1alpha1.SandboxPool) bool { return true })
	if !metav1.IsControlledBy(pool, e) || pool.Labels["tier"] != "gold" || pool.Labels[v1alpha1.LabelEnv] != "e" ||
		pool.Spec.TemplateRef.Name != e.Spec.TemplateRef.Name || pool.Spec.IdleTimeout == nil {
		t.Errorf("pool %+v", pool)
	}
	w.await("a", v1alpha1.PodIdle, 2)
	kubetest.Eventually(t, "status", func() error {
		s := w.getEnv("e").Status
		if s.Members != 2 || s.Idle != 2 || len(s.ScalingGroups) != 1 || s.ScalingGroups[0].Desired != 2 || s.ObservedGeneration != 1 ||
			!meta.IsStatusConditionTrue(s.Conditions, v1alpha1.EnvConditionReady) || !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.EnvConditionTemplateConsistent) {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})

	// What somebody changes comes back, what the env does not name stays.
	for _, drift := range []func(*v1alpha1.SandboxPool){
		func(p *v1alpha1.SandboxPool) { p.Labels["tier"] = "lead" },
		func(p *v1alpha1.SandboxPool) { delete(p.Annotations, "note") },
		func(p *v1alpha1.SandboxPool) { p.Spec.IdleTimeout = nil },
		func(p *v1alpha1.SandboxPool) { p.Spec.StartupTimeout = &metav1.Duration{} },
		func(p *v1alpha1.SandboxPool) { p.Spec.Replicas = 1 },
	} {
		now := w.awaitPool("a", "there", func(*v1alpha1.SandboxPool) bool { return true })
		base := now.DeepCopy()
		now.Annotations["other"] = "stays"
		drift(now)
		if err := w.c.Patch(t.Context(), now, client.MergeFrom(base)); err != nil {
			t.Fatal(err)
		}
		w.awaitPool("a", "as the env says", func(p *v1alpha1.SandboxPool) bool {
			return p.Labels["tier"] == "gold" && p.Annotations["note"] == "x" && p.Annotations["other"] == "stays" && p.Spec.Replicas == 2 &&
				p.Spec.IdleTimeout != nil && p.Spec.IdleTimeout.Duration == 0 && p.Spec.StartupTimeout == nil
		})
	}
	w.await("a", v1alpha1.PodIdle, 2)
	if told := w.eventsOfEnv("e"); told["PoolCreated"] != 2 || told["PoolUpdated"] == 0 {
		t.Errorf("Events %v", told)
	}

	// A template that the member names no more goes from the pool too.
	w.changeEnv("e", func(e *v1alpha1.SandboxEnv) { e.Spec.Clusters[0].Members[0].Spec.IdleTimeout = nil })
	w.awaitPool("a", "without an idle timeout", func(p *v1alpha1.SandboxPool) bool { return p.Spec.IdleTimeout == nil })
	// What was written for a drift may come late, each once: then five more looks write nothing.
	for round := range 3 {
		w.settled(&writes)
		before, seen := writes.Load(), looks.Load()
		for i := range 5 {
			w.touch("b", fmt.Sprint(round, i))
			kubetest.Eventually(t, "a look", func() error {
				if looks.Load() == seen {
					return errors.New("none")
				}
				return nil
			})
			seen = looks.Load()
		}
		n := writes.Load() - before
		if n == 0 {
			return
		}
		if n >= 5 || round == 2 {
			t.Fatalf("%d writes for a settled env", n)
		}
	}
}

// touch has everything that watches a pool look at it.
func (w *world) touch(pool, value string) {
	w.t.Helper()
	p := w.awaitPool(pool, "there", func(*v1alpha1.SandboxPool) bool { return true })
	base := p.DeepCopy()
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, "touched", value)
	if err := w.c.Patch(w.t.Context(), p, client.MergeFrom(base)); err != nil {
		w.t.Fatal(err)
	}
}

// settled waits until the controller has written nothing for a second.
func (w *world) settled(writes *atomic.Int64) {
	w.t.Helper()
	last, since := writes.Load(), time.Now()
	kubetest.Eventually(w.t, "a second without writes", func() error {
		if now := writes.Load(); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < time.Second {
			return errors.New("still writing")
		}
		return nil
	})
}

// eventsOfEnv counts an env's Events by reason.
func (w *world) eventsOfEnv(name string) map[string]int {
	w.t.Helper()
	reasons := map[string]int{}
	for _, r := range w.eventsOf(&v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{UID: w.getEnv(name).UID}}) {
		reasons[r]++
	}
	return reasons
}
