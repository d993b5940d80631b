package builds

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

const (
	registry = "registry.test/templates"
	first    = "00000000-0000-0000-0000-000000000001"
	second   = "00000000-0000-0000-0000-000000000002"
)

var image = registry + "/uid-a@sha256:" + strings.Repeat("0", 64)

// world is a Reconciler over objects in memory.
type world struct {
	t     *testing.T
	r     *Reconciler
	clock *clocktesting.FakeClock
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	clock := clocktesting.NewFakeClock(time.Now())
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid-a"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(ns).WithStatusSubresource(&v1alpha1.TemplateBuild{}, &v1alpha1.SandboxPool{}).Build()
	return &world{t, &Reconciler{Client: c, Registry: registry, Clock: clock}, clock}
}

// build makes a build in a phase.
func (w *world) build(name string, change func(*v1alpha1.TemplateBuild)) {
	w.t.Helper()
	b := &v1alpha1.TemplateBuild{}
	b.Namespace, b.Name, b.UID = "a", name, types.UID("uid-"+name)
	b.CreationTimestamp = metav1.NewTime(w.clock.Now())
	b.Spec = v1alpha1.TemplateBuildSpec{
		TemplateID: "t", Name: "x", Tags: []string{"default"}, CPUCount: 2, MemoryMB: 512,
		Recipe: &v1alpha1.TemplateRecipe{From: "debian", StartCommand: "serve", ReadyCommand: "ready"},
	}
	if err := w.r.Create(w.t.Context(), b); err != nil {
		w.t.Fatal(err)
	}
	b.Status.PhaseAt = &metav1.Time{Time: w.clock.Now()}
	change(b)
	if err := w.r.Status().Update(w.t.Context(), b); err != nil {
		w.t.Fatal(err)
	}
}

// reconcile looks at a build once and returns it; nil if it is gone.
func (w *world) reconcile(name string) *v1alpha1.TemplateBuild {
	w.t.Helper()
	key := types.NamespacedName{Namespace: "a", Name: name}
	if _, err := w.r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
		w.t.Fatal(err)
	}
	b := &v1alpha1.TemplateBuild{}
	if err := w.r.Get(w.t.Context(), key, b); err != nil {
		if client.IgnoreNotFound(err) != nil {
			w.t.Fatal(err)
		}
		return nil
	}
	return b
}

// pool returns a pool; nil if there is none.
func (w *world) pool(name string) *v1alpha1.SandboxPool {
	w.t.Helper()
	p := &v1alpha1.SandboxPool{}
	if err := w.r.Get(w.t.Context(), client.ObjectKey{Namespace: "a", Name: name}, p); err != nil {
		if client.IgnoreNotFound(err) != nil {
			w.t.Fatal(err)
		}
		return nil
	}
	return p
}

func (w *world) setPool(name string, change func(*v1alpha1.SandboxPoolStatus)) {
	w.t.Helper()
	p := w.pool(name)
	change(&p.Status)
	if err := w.r.Status().Update(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
}

func degraded(at time.Time) func(*v1alpha1.SandboxPoolStatus) {
	return func(s *v1alpha1.SandboxPoolStatus) {
		s.Conditions = []metav1.Condition{{Type: v1alpha1.PoolConditionDegraded, Status: metav1.ConditionTrue, Reason: "ErrImagePull", Message: "no such image", LastTransitionTime: metav1.NewTime(at)}}
	}
}

// A build gets its builder's pool when its base is there, its own when its image is, and is
// Ready with its names when a pod is.
func TestLife(t *testing.T) {
	w := newWorld(t)
	w.build(first, func(b *v1alpha1.TemplateBuild) { b.Status.Phase = v1alpha1.BuildBuilding })
	if w.reconcile(first); w.pool("build-"+first) != nil {
		t.Fatal("a builder without a base")
	}
	b := w.reconcile(first)
	b.Status.Base = image
	if err := w.r.Status().Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	w.reconcile(first)
	builder := w.pool("build-" + first)
	if builder == nil || builder.Spec.MaxPods != 1 || builder.Spec.FirstRequest != nil || builder.Labels[v1alpha1.LabelTemplate] != "" {
		t.Fatalf("the builder's pool: %+v", builder)
	}
	b = w.reconcile(first)
	b.Status.Phase, b.Status.Image = v1alpha1.BuildStarting, image
	if err := w.r.Status().Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	b = w.reconcile(first)
	pool := w.pool("template-" + first)
	if pool == nil || w.pool("build-"+first) != nil || b.Status.Phase != v1alpha1.BuildStarting {
		t.Fatalf("pool %+v, build %+v", pool, b.Status)
	}
	spec := pool.Spec.Template.Template.Spec
	c := spec.Containers[0]
	if c.Image != image || !slices.Equal(c.Command, []string{"/bin/sh", "-c", "serve"}) || c.StartupProbe == nil || *c.SecurityContext.RunAsUser != 0 ||
		c.Resources.Limits.Cpu().Value() != 2 || c.Resources.Requests.Cpu().MilliValue() != 200 || c.Resources.Limits.Memory().Value() != 512<<20 {
		t.Errorf("the container: %+v", c)
	}
	if *spec.AutomountServiceAccountToken || len(spec.Volumes) > 0 || spec.ServiceAccountName != "" || c.SecurityContext.Privileged != nil || pool.Spec.FirstRequest != nil || !metav1.IsControlledBy(pool, b) {
		t.Errorf("the pod has more than it may: %+v", spec)
	}
	w.setPool("template-"+first, func(s *v1alpha1.SandboxPoolStatus) { s.Idle, s.UnavailableIdle = 1, 1 })
	if b = w.reconcile(first); b.Status.Phase != v1alpha1.BuildStarting {
		t.Errorf("Ready without a ready pod: %+v", b.Status)
	}
	w.setPool("template-"+first, func(s *v1alpha1.SandboxPoolStatus) { s.UnavailableIdle = 0 })
	if b = w.reconcile(first); b.Status.Phase != v1alpha1.BuildReady || len(b.Status.Tags) != 1 {
		t.Fatalf("%+v", b.Status)
	} // a client that reads that finds the names
	if got := w.pool("template-" + first).Annotations[v1alpha1.AnnotationAliases]; got != "t,x" {
		t.Errorf("names %q", got)
	}
}

// A name moves to the last build that has its tag, and is on a pool at every moment.
func TestNamesMove(t *testing.T) {
	w := newWorld(t)
	for i, name := range []string{first, second} {
		w.build(name, func(b *v1alpha1.TemplateBuild) {
			b.Status.Phase, b.Status.Image = v1alpha1.BuildReady, image
			for _, tag := range []string{"default", "v" + string(rune('1'+i))} {
				b.Status.Tags = append(b.Status.Tags, v1alpha1.BuildTag{Name: tag, At: metav1.NewMicroTime(w.clock.Now().Add(time.Duration(i) * time.Second))})
			}
		})
		b := w.reconcile(name)
		if err := w.r.Create(t.Context(), w.r.templatePool(b)); err != nil {
			t.Fatal(err)
		}
		w.reconcile(name)
	}
	if a, b := w.pool("template-" + first).Annotations[v1alpha1.AnnotationAliases], w.pool("template-" + second).Annotations[v1alpha1.AnnotationAliases]; a != "t:v1,x:v1" || b != "t,t:v2,x,x:v2" {
		t.Errorf("names %q and %q", a, b)
	}
}

// A build that cannot go on fails with a reason, and its pools go.
func TestFailures(t *testing.T) {
	building := func(b *v1alpha1.TemplateBuild) {
		b.Status.Phase, b.Status.Base, b.Status.Step = v1alpha1.BuildBuilding, image, "base"
	}
	starting := func(b *v1alpha1.TemplateBuild) {
		b.Status.Phase, b.Status.Image, b.Status.Step = v1alpha1.BuildStarting, image, "finalize"
	}
	for _, c := range []struct {
		what  string
		build func(*v1alpha1.TemplateBuild)
		then  func(w *world)
		said  string
	}{
		{"its gateway is silent", building, func(w *world) { w.clock.Step(silentFor + time.Second) }, "gateway"},
		{"its builder gets no pod", building, func(w *world) { w.setPool("build-"+first, degraded(w.clock.Now().Add(-refusedFor))) }, "no such image"},
		{"its own pool gets no pod", starting, func(w *world) { w.setPool("template-"+first, degraded(w.clock.Now().Add(-refusedFor))) }, "no such image"},
		{"its pod is never ready", starting, func(w *world) { w.clock.Step(startFor + time.Second) }, "ready command"},
	} {
		w := newWorld(t)
		w.build(first, c.build)
		if b := w.reconcile(first); b.Status.Phase == v1alpha1.BuildFailed {
			t.Fatalf("%s: failed before: %s", c.what, b.Status.Message)
		}
		c.then(w)
		b := w.reconcile(first)
		if b.Status.Phase != v1alpha1.BuildFailed || !strings.Contains(b.Status.Message, c.said) || b.Status.Step == "" {
			t.Errorf("%s: %+v", c.what, b.Status)
		}
		w.reconcile(first)
		if w.pool("build-"+first) != nil || w.pool("template-"+first) != nil {
			t.Errorf("%s: a pool is left", c.what)
		}
		w.clock.Step(failedFor + time.Second)
		if w.reconcile(first) != nil {
			t.Errorf("%s: it is kept", c.what)
		}
	}
}

// A build that fails after its names were moved gives them back.
func TestNamesGoBack(t *testing.T) {
	w := newWorld(t)
	for i, name := range []string{first, second} {
		w.build(name, func(b *v1alpha1.TemplateBuild) {
			b.Status.Phase, b.Status.Image = v1alpha1.BuildStarting, image
			if i == 0 {
				b.Status.Phase, b.Status.Tags = v1alpha1.BuildReady, []v1alpha1.BuildTag{{Name: "default", At: metav1.NewMicroTime(w.clock.Now())}}
				if err := w.r.Create(t.Context(), w.r.templatePool(b)); err != nil {
					t.Fatal(err)
				}
			}
		})
		w.reconcile(name)
	}
	moved := w.reconcile(second).DeepCopy()
	moved.Status.Phase, moved.Status.Tags = v1alpha1.BuildReady, []v1alpha1.BuildTag{{Name: "default", At: metav1.NewMicroTime(w.clock.Now().Add(time.Second))}}
	if err := w.r.name(t.Context(), moved); err != nil {
		t.Fatal(err)
	}
	if a, b := w.pool("template-" + first).Annotations[v1alpha1.AnnotationAliases], w.pool("template-" + second).Annotations[v1alpha1.AnnotationAliases]; a != "" || b != "t,x" {
		t.Fatalf("names %q and %q", a, b)
	}
	w.clock.Step(startFor + time.Second)
	w.reconcile(second)
	w.reconcile(second)
	if got := w.pool("template-" + first).Annotations[v1alpha1.AnnotationAliases]; got != "t,x" {
		t.Errorf("names %q", got)
	}
}

// What is degraded for a moment, and a gateway that goes on, fail nothing.
func TestPatience(t *testing.T) {
	w := newWorld(t)
	w.build(first, func(b *v1alpha1.TemplateBuild) { b.Status.Phase, b.Status.Base = v1alpha1.BuildBuilding, image })
	w.reconcile(first)
	w.setPool("build-"+first, degraded(w.clock.Now()))
	w.clock.Step(refusedFor - time.Second)
	w.reconcile(first)
	w.setPool("build-"+first, func(s *v1alpha1.SandboxPoolStatus) { s.Running = 1 }) // the builder runs; the pool may have no more
	for range 5 {
		w.clock.Step(silentFor - refusedFor)
		b := w.reconcile(first)
		if b.Status.Phase != v1alpha1.BuildBuilding {
			t.Fatalf("%+v", b.Status)
		}
		b.Status.Heartbeat = &metav1.Time{Time: w.clock.Now()}
		if err := w.r.Status().Update(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		w.reconcile(first)
	}
}

// A gateway that was taken over makes no pod of an image of its choice, nor a pool of another's
// name.
func TestImagesRefused(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for _, bad := range []string{"evil.test/uid-a" + digest, registry + "/uid-a:tag", registry + digest, registry + ".evil.test/uid-a" + digest, registry + "/uid-a@sha256:00", registry + "/uid-b" + digest, registry + "/uid-a/x" + digest, ""} {
		w := newWorld(t)
		w.build(first, func(b *v1alpha1.TemplateBuild) { b.Status.Phase, b.Status.Image = v1alpha1.BuildStarting, bad })
		if b := w.reconcile(first); b.Status.Phase != v1alpha1.BuildFailed || w.pool("template-"+first) != nil {
			t.Errorf("%q became a pool: %+v", bad, b.Status)
		}
	}
	w := newWorld(t)
	foreign := &v1alpha1.SandboxPool{}
	foreign.Namespace, foreign.Name = "a", "template-"+first
	if err := w.r.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	w.build(first, func(b *v1alpha1.TemplateBuild) { b.Status.Phase, b.Status.Image = v1alpha1.BuildStarting, image })
	if b := w.reconcile(first); b.Status.Phase != v1alpha1.BuildFailed {
		t.Errorf("another's pool was taken: %+v", b.Status)
	}
	if w.reconcile(first); w.pool("template-"+first) == nil {
		t.Error("another's pool was deleted")
	}
}

// Gateways write what they keep on Docker Hub by its long name.
func TestImageOnDockerHub(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for image, taken := range map[string]bool{
		"index.docker.io/acme/uid-a" + digest: true, "index.docker.io/library/acme/uid-a" + digest: false, "index.docker.io/acme/uid-b" + digest: false,
	} {
		w := newWorld(t)
		w.r.Registry = "docker.io/acme"
		w.build(first, func(b *v1alpha1.TemplateBuild) { b.Status.Phase, b.Status.Image = v1alpha1.BuildStarting, image })
		if b := w.reconcile(first); (b.Status.Phase != v1alpha1.BuildFailed) != taken || (w.pool("template-"+first) != nil) != taken {
			t.Errorf("%s: %+v, want a pool: %v", image, b.Status, taken)
		}
	}
}

// A build that gets Ready has its tags, also where the clock that wrote them to another was ahead.
func TestTagsOfAClockThatIsAhead(t *testing.T) {
	w := newWorld(t)
	ahead := metav1.NewMicroTime(w.clock.Now().Add(time.Hour))
	w.build(first, func(b *v1alpha1.TemplateBuild) {
		b.Status.Phase, b.Status.Image = v1alpha1.BuildReady, image
		b.Status.Tags = []v1alpha1.BuildTag{{Name: "default", At: ahead}}
	})
	w.build(second, func(b *v1alpha1.TemplateBuild) { b.Status.Phase, b.Status.Image = v1alpha1.BuildStarting, image })
	w.reconcile(second)
	w.setPool("template-"+second, func(s *v1alpha1.SandboxPoolStatus) { s.Idle = 1 })
	if b := w.reconcile(second); b.Status.Phase != v1alpha1.BuildReady || len(b.Status.Tags) != 1 || !b.Status.Tags[0].At.After(ahead.Time) {
		t.Errorf("the build that is Ready last has %+v, after %v", b.Status, ahead)
	}
}
