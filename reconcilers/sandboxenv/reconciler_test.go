package sandboxenv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

var envKey = client.ObjectKey{Namespace: "ns", Name: "e"}

// bench is a reconciler on a fake API.
type bench struct {
	t *testing.T
	c client.WithWatch
	r *SandboxEnvReconciler
	// writes counts what the reconciler wrote; conflicts of them are refused first.
	writes, conflicts int
	upserts           int
	recorder          *events.FakeRecorder
}

func (b *bench) OnEnvUpsert(*v1alpha1.SandboxEnv) { b.upserts++ }

func newBench(t *testing.T, objects ...client.Object) *bench {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, recorder: events.NewFakeRecorder(100)}
	write := func() error {
		if b.conflicts > 0 {
			b.conflicts--
			return fmt.Errorf("as a wrapped one: %w", apierrors.NewConflict(schema.GroupResource{Resource: "x"}, "x", errors.New("moved")))
		}
		b.writes++
		return nil
	}
	r := &SandboxEnvReconciler{Scheme: scheme, LocalClusterID: "local", Recorder: b.recorder, EnvRouterSync: b}
	b.c = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.SandboxEnv{}, &v1alpha1.SandboxPool{}).
		WithIndex(&v1alpha1.SandboxPool{}, indexOwner, ownerEnv).Build()
	r.Client = interceptor.NewClient(b.c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := write(); err != nil {
				return err
			}
			o.SetUID("uid-of-pool")
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := write(); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := write(); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := write(); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	b.r = r
	return b
}

func (b *bench) reconcile() ctrl.Result {
	b.t.Helper()
	result, err := b.r.Reconcile(b.t.Context(), ctrl.Request{NamespacedName: envKey})
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

func (b *bench) get(name string, o client.Object) {
	b.t.Helper()
	if err := b.c.Get(b.t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, o); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) events() (all []string) {
	for {
		select {
		case e := <-b.recorder.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

func env(members ...v1alpha1.EnvMember) *v1alpha1.SandboxEnv {
	return &v1alpha1.SandboxEnv{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "e", UID: "uid-of-env", Generation: 1},
		Spec: v1alpha1.SandboxEnvSpec{
			TemplateRef: v1alpha1.TemplateRef{Name: "t"},
			Clusters:    []v1alpha1.EnvCluster{{ClusterID: "local", Members: members}},
		},
	}
}

func template() *v1alpha1.SandboxTemplate {
	return &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
}

var two = v1alpha1.EnvMember{Name: "m", Spec: v1alpha1.EnvMemberSpec{Replicas: ptr.To[int32](2)}}

func TestSetupNeedsAClusterID(t *testing.T) {
	if err := (&SandboxEnvReconciler{}).SetupWithManager(nil, controller.Options{}); err == nil || !strings.Contains(err.Error(), "--cluster-id") {
		t.Errorf("error %v", err)
	}
}

func TestJitter(t *testing.T) {
	const n = 10_000
	least, most, sum := time.Hour, time.Duration(0), time.Duration(0)
	for range n {
		d := jittered()
		least, most, sum = min(least, d), max(most, d), sum+d
	}
	// A look begins at the nearest of the moments that all share.
	if least < 8*time.Second || most > 12*time.Second || least > 8500*time.Millisecond || most < 11500*time.Millisecond {
		t.Errorf("from %v to %v, want 8 s to 12 s", least, most)
	}
	if mean := sum / n; mean < 9800*time.Millisecond || mean > 10200*time.Millisecond {
		t.Errorf("%v on average, want 10 s", mean)
	}
}

// An env that is gone is no error, and one that is being deleted gets no pools.
func TestGoneAndGoing(t *testing.T) {
	b := newBench(t, template())
	if got := b.reconcile(); got.RequeueAfter != 0 {
		t.Errorf("a missing env is looked at again after %v", got.RequeueAfter)
	}
	going := env(two)
	going.Finalizers, going.DeletionTimestamp = []string{"x/y"}, &metav1.Time{Time: time.Now()}
	b = newBench(t, template(), going)
	if b.reconcile(); b.writes != 0 || b.upserts != 0 {
		t.Errorf("%d writes and %d upserts for an env that is being deleted", b.writes, b.upserts)
	}
}

// A look that finds nothing to do writes nothing.
func TestSettledEnvWritesNothing(t *testing.T) {
	b := newBench(t, template(), env(two))
	b.reconcile()
	b.reconcile()
	before := b.writes
	for range 5 {
		b.reconcile()
	}
	if b.writes != before || b.upserts != 7 {
		t.Errorf("%d writes of a settled env, %d upserts of 7 looks", b.writes-before, b.upserts)
	}
}

// A conflict is a look soon after; it tells no router, and writes no status from what
// was read.
func TestConflictIsARequeue(t *testing.T) {
	b := newBench(t, template(), env(two))
	for range 2 { // of the pool's create, then of the status
		b.conflicts = 1
		if got := b.reconcile(); got.RequeueAfter != conflictPause || b.upserts != 0 {
			t.Fatalf("looked at again after %v, %d upserts", got.RequeueAfter, b.upserts)
		}
	}
	var e v1alpha1.SandboxEnv
	if b.get("e", &e); e.Status.ObservedGeneration != 0 {
		t.Errorf("a status was written: %+v", e.Status)
	}
	if b.reconcile(); b.upserts != 1 {
		t.Errorf("%d upserts after a look that succeeded", b.upserts)
	}
}

// plugins refuse, or cap replicas at 1.
type plugins struct {
	refuse           error
	creates, updates int
}

func (p *plugins) PreCreatePool(_ context.Context, pool *v1alpha1.SandboxPool) error {
	p.creates++
	pool.Spec.Replicas = min(pool.Spec.Replicas, 1)
	return p.refuse
}

func (p *plugins) PreUpdatePool(_ context.Context, _, pool *v1alpha1.SandboxPool) error {
	p.updates++
	pool.Spec.Replicas = min(pool.Spec.Replicas, 1)
	return p.refuse
}

// A refusal keeps the pool from being made, shows in status, condition and one Event.
func TestPluginRefuses(t *testing.T) {
	b := newBench(t, template(), env(two))
	p := &plugins{refuse: errors.New("not on a Sunday")}
	b.r.PluginManager = p
	for range 3 {
		b.reconcile()
	}
	var e v1alpha1.SandboxEnv
	b.get("e", &e)
	m := e.Status.Clusters[0].ObservedMembers[0]
	c := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.EnvConditionTemplateConsistent)
	if m.State != v1alpha1.MemberMissing || m.LastAttempt != "not on a Sunday" || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "not on a Sunday") {
		t.Errorf("member %+v, condition %+v", m, c)
	}
	if got := b.events(); len(got) != 1 || !strings.Contains(got[0], "PoolRefused") {
		t.Errorf("events %q", got)
	}
	p.refuse = nil
	b.reconcile()
	var pool v1alpha1.SandboxPool
	if b.get("m", &pool); pool.Spec.Replicas != 1 {
		t.Errorf("%d replicas, and the plugin allows 1", pool.Spec.Replicas)
	}
	// What the plugin changes each time is no difference to be written.
	b.reconcile()
	before := b.writes
	for range 3 {
		b.reconcile()
	}
	if b.writes != before || p.updates < 3 {
		t.Errorf("%d writes against a plugin's change, asked %d times", b.writes-before, p.updates)
	}
}

// Without its template no pool is made, one that exists keeps the template it has, and
// what else the env says still reaches it.
func TestTemplateIsMissing(t *testing.T) {
	b := newBench(t, env(two))
	b.reconcile()
	var e v1alpha1.SandboxEnv
	b.get("e", &e)
	if m, c := e.Status.Clusters[0].ObservedMembers[0], meta.FindStatusCondition(e.Status.Conditions, v1alpha1.EnvConditionTemplateConsistent); m.State != v1alpha1.MemberMissing ||
		m.Message != "there is no SandboxTemplate t" || c.Reason != "TemplateNotFound" {
		t.Errorf("member %+v, condition %+v", m, c)
	}
	if c := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.EnvConditionReady); !strings.Contains(c.Message, "there is no SandboxTemplate t") {
		t.Errorf("condition %+v, which does not say why no member has a pool", c)
	}
	if err := b.c.Create(t.Context(), template()); err != nil {
		t.Fatal(err)
	}
	b.reconcile()
	b.get("e", &e)
	e.Spec.TemplateRef.Name, e.Spec.Clusters[0].Members[0].Spec.Replicas = "other", ptr.To[int32](5)
	if err := b.c.Update(t.Context(), &e); err != nil {
		t.Fatal(err)
	}
	b.reconcile()
	var pool v1alpha1.SandboxPool
	if b.get("m", &pool); pool.Spec.TemplateRef.Name != "t" || pool.Spec.Replicas != 5 {
		t.Errorf("template %s, %d replicas", pool.Spec.TemplateRef.Name, pool.Spec.Replicas)
	}
	b.get("e", &e)
	if m := e.Status.Clusters[0].ObservedMembers[0]; m.State != v1alpha1.MemberInconsistent {
		t.Errorf("member %+v", m)
	}
}
