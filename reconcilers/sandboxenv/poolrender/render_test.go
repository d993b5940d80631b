package poolrender

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

// full is an env, a member and a template with everything set.
func full() (*v1alpha1.SandboxEnv, v1alpha1.EnvMember, *v1alpha1.SandboxTemplate) {
	env := &v1alpha1.SandboxEnv{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "e", UID: "env-uid"},
		Spec: v1alpha1.SandboxEnvSpec{
			TemplateRef:  v1alpha1.TemplateRef{Name: "t"},
			FirstRequest: &v1alpha1.FirstRequest{Access: v1alpha1.AccessAPIKey, IDPrefix: "e-"},
		},
	}
	member := v1alpha1.EnvMember{
		Name: "m", Labels: map[string]string{"a": "1"}, Annotations: map[string]string{"b": "2"},
		Spec: v1alpha1.EnvMemberSpec{
			Replicas: ptr.To[int32](3), MaxPods: 7, PodCreationImagePolicy: v1alpha1.ImagePolicyIdle, RecyclePolicy: v1alpha1.RecycleInPlace,
			StartupTimeout: duration(time.Minute), IdleTimeout: duration(0),
		},
	}
	return env, member, &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
}

func TestRender(t *testing.T) {
	env, member, template := full()
	pool, err := Render(env, member, template)
	if err != nil {
		t.Fatal(err)
	}
	s := pool.Spec
	if !metav1.IsControlledBy(pool, env) || pool.Namespace != "ns" || pool.Name != "m" || pool.Labels["a"] != "1" ||
		pool.Labels[v1alpha1.LabelEnv] != "e" || pool.Annotations["b"] != "2" {
		t.Errorf("metadata %+v", pool.ObjectMeta)
	}
	if s.Replicas != 3 || s.MaxPods != 7 || s.TemplateRef.Name != "t" || s.Template != nil || s.PodCreationImagePolicy != v1alpha1.ImagePolicyIdle ||
		s.RecyclePolicy != v1alpha1.RecycleInPlace || s.StartupTimeout.Duration != time.Minute || s.IdleTimeout == nil || s.IdleTimeout.Duration != 0 ||
		s.FirstRequest.IDPrefix != "e-" {
		t.Errorf("spec %+v", s)
	}
	// Nothing is shared with what was given.
	s.StartupTimeout.Duration, s.FirstRequest.IDPrefix, pool.Labels["a"], pool.Annotations["b"] = 1, "x", "x", "x"
	if e, m, tpl := full(); !reflect.DeepEqual(env, e) || !reflect.DeepEqual(member, m) || !reflect.DeepEqual(template, tpl) {
		t.Error("changing the pool changed what it was rendered from")
	}
	if again, err := Render(env, member, template); err != nil || reflect.DeepEqual(again, pool) {
		t.Errorf("a second pool shares with the first, or %v", err)
	}
	if _, err := Render(env, member, nil); !errors.Is(err, ErrNoTemplate) {
		t.Errorf("without a template: %v", err)
	}
	template.Name = "other"
	if _, err := Render(env, member, template); err == nil {
		t.Error("another template than the env names is taken")
	}
}

// Each field of a pool's spec that members do not share is a member's too.
func TestMemberSpecIsWhole(t *testing.T) {
	shared := map[string]bool{"templateRef": true, "template": true, "firstRequest": true}
	pool, member := reflect.TypeFor[v1alpha1.SandboxPoolSpec](), reflect.TypeFor[v1alpha1.EnvMemberSpec]()
	has := map[string]bool{}
	for i := range member.NumField() {
		name, _, _ := strings.Cut(member.Field(i).Tag.Get("json"), ",")
		has[name] = true
	}
	for i := range pool.NumField() {
		if name, _, _ := strings.Cut(pool.Field(i).Tag.Get("json"), ","); !shared[name] && !has[name] {
			t.Errorf("a member cannot say %s of its pool, so the env takes it away", name)
		}
	}
}

func TestInitialReplicas(t *testing.T) {
	env, member, template := full()
	member.Spec.Replicas = nil
	for _, c := range []struct {
		least, most *int32
		want        int32
	}{{nil, nil, 1}, {ptr.To[int32](4), nil, 4}, {nil, ptr.To[int32](0), 0}, {ptr.To[int32](0), ptr.To[int32](9), 1}} {
		member.Config.MinReplicas, member.Config.MaxReplicas = c.least, c.most
		if pool, err := Render(env, member, template); err != nil || pool.Spec.Replicas != c.want {
			t.Errorf("bounds %v and %v: %d replicas, %v; want %d", c.least, c.most, pool.Spec.Replicas, err, c.want)
		}
	}
}

func TestStamp(t *testing.T) {
	for _, c := range []struct {
		name  string
		drift func(*v1alpha1.SandboxPool)
		env   func(*v1alpha1.SandboxEnv, *v1alpha1.EnvMember)
		same  bool
	}{
		{name: "nothing", same: true},
		{name: "label", drift: func(p *v1alpha1.SandboxPool) { p.Labels["a"] = "x" }},
		{name: "label gone", drift: func(p *v1alpha1.SandboxPool) { delete(p.Labels, "a") }},
		{name: "env label", drift: func(p *v1alpha1.SandboxPool) { p.Labels = nil }},
		{name: "annotation", drift: func(p *v1alpha1.SandboxPool) { p.Annotations["b"] = "x" }},
		{name: "replicas", drift: func(p *v1alpha1.SandboxPool) { p.Spec.Replicas = 1 }},
		{name: "maxPods", drift: func(p *v1alpha1.SandboxPool) { p.Spec.MaxPods = 0 }},
		{name: "image policy", drift: func(p *v1alpha1.SandboxPool) { p.Spec.PodCreationImagePolicy = v1alpha1.ImagePolicyPoolDefault }},
		{name: "recycle policy", drift: func(p *v1alpha1.SandboxPool) { p.Spec.RecyclePolicy = v1alpha1.RecycleReplace }},
		{name: "startup timeout", drift: func(p *v1alpha1.SandboxPool) { p.Spec.StartupTimeout = nil }},
		{name: "idle timeout: none is not 0s", drift: func(p *v1alpha1.SandboxPool) { p.Spec.IdleTimeout = nil }},
		{name: "idle timeout: 0s is not none", env: func(_ *v1alpha1.SandboxEnv, m *v1alpha1.EnvMember) { m.Spec.IdleTimeout = nil }},
		{name: "template", drift: func(p *v1alpha1.SandboxPool) { p.Spec.TemplateRef.Name = "x" }},
		{name: "own template", drift: func(p *v1alpha1.SandboxPool) {
			p.Spec.TemplateRef, p.Spec.Template = nil, &v1alpha1.SandboxTemplateSpec{}
		}},
		{name: "first request", env: func(e *v1alpha1.SandboxEnv, _ *v1alpha1.EnvMember) { e.Spec.FirstRequest = nil }},
		{name: "draining", drift: func(p *v1alpha1.SandboxPool) { p.Annotations[v1alpha1.AnnotationDraining] = "true" }},
		{name: "further label", same: true, drift: func(p *v1alpha1.SandboxPool) { p.Labels["other"] = "x" }},
		{name: "further annotation", same: true, drift: func(p *v1alpha1.SandboxPool) { p.Annotations[v1alpha1.AnnotationAliases] = "x" }},
		{name: "further owner", same: true, drift: func(p *v1alpha1.SandboxPool) {
			p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{Name: "x"})
		}},
		{
			name: "replicas that the env does not say", same: true,
			drift: func(p *v1alpha1.SandboxPool) { p.Spec.Replicas = 9 },
			env:   func(_ *v1alpha1.SandboxEnv, m *v1alpha1.EnvMember) { m.Spec.Replicas = nil },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			env, member, template := full()
			pool, err := Render(env, member, template)
			if err != nil {
				t.Fatal(err)
			}
			if c.drift != nil {
				c.drift(pool)
			}
			if c.env != nil {
				c.env(env, &member)
			}
			before := pool.DeepCopy()
			next := Stamp(pool, env, member, template)
			if !reflect.DeepEqual(pool, before) {
				t.Error("the pool that was given is changed")
			}
			if got := equality.Semantic.DeepEqual(pool, next); got != c.same {
				t.Errorf("the same: %v, want %v", got, c.same)
			}
			if again := Stamp(next, env, member, template); !equality.Semantic.DeepEqual(next, again) {
				t.Error("stamping twice differs from stamping once")
			}
		})
	}
}

// A template that is not there is not put on a pool that has one.
func TestStampWithoutTemplate(t *testing.T) {
	env, member, template := full()
	pool, err := Render(env, member, template)
	if err != nil {
		t.Fatal(err)
	}
	env.Spec.TemplateRef.Name, member.Spec.Replicas = "not-there", ptr.To[int32](8)
	if next := Stamp(pool, env, member, nil); next.Spec.TemplateRef.Name != "t" || next.Spec.Replicas != 8 {
		t.Errorf("template %q, %d replicas", next.Spec.TemplateRef.Name, next.Spec.Replicas)
	}
}

// A pool that was draining and is a member again begins as a new one: the drain took its
// replicas away.
func TestStampAfterADrain(t *testing.T) {
	env, member, template := full()
	member.Spec.Replicas = nil
	member.Config = v1alpha1.EnvMemberConfig{MinReplicas: new(int32(3))}
	pool, err := Render(env, member, template)
	if err != nil {
		t.Fatal(err)
	}
	pool.Spec.Replicas = 0
	metav1.SetMetaDataAnnotation(&pool.ObjectMeta, v1alpha1.AnnotationDraining, "true")
	if next := Stamp(pool, env, member, template); next.Spec.Replicas != 3 || next.Annotations[v1alpha1.AnnotationDraining] != "" {
		t.Errorf("%d replicas, annotations %v", next.Spec.Replicas, next.Annotations)
	}
}
