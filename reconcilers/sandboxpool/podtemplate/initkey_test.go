package podtemplate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

func templateWith(t *testing.T, containers ...corev1.Container) *Template {
	t.Helper()
	spec := &v1alpha1.SandboxTemplateSpec{}
	spec.Template.Spec.Containers = containers
	tpl, err := Render(spec, "")
	if err != nil {
		t.Fatal(err)
	}
	return tpl
}

// A pod that runs sandboxd gets the public key and its own UID, whatever its template
// says of them, and carries the key's ID; nothing else of it changes, its hash neither.
func TestGiveInitKey(t *testing.T) {
	pool := &v1alpha1.SandboxPool{}
	pool.Name = "base"
	tpl := templateWith(t,
		corev1.Container{Name: "main", Env: []corev1.EnvVar{{Name: "A", Value: "1"}}},
		corev1.Container{
			Name: "envd", Ports: []corev1.ContainerPort{{ContainerPort: v1alpha1.SandboxdPort}},
			Env: []corev1.EnvVar{{Name: envInitKey, Value: "mine"}, {Name: "B", Value: "2"}, {Name: envPodUID, Value: "another"}},
		})
	plain, pod := tpl.NewPod(pool), tpl.NewPod(pool)
	InitKey{ID: "id", Public: "public"}.Give(pod)
	if pod.Labels[v1alpha1.LabelInitKey] != "id" || len(pod.Labels) != len(plain.Labels)+1 ||
		pod.Annotations[v1alpha1.AnnotationTemplateHash] != plain.Annotations[v1alpha1.AnnotationTemplateHash] {
		t.Errorf("labels %v, annotations %v", pod.Labels, pod.Annotations)
	}
	if env := pod.Spec.Containers[0].Env; len(env) != 1 {
		t.Errorf("the container without sandboxd has %v", env)
	}
	env := pod.Spec.Containers[1].Env
	if len(env) != 3 || env[0].Name != "B" || env[1] != (corev1.EnvVar{Name: envInitKey, Value: "public"}) ||
		env[2].Name != envPodUID || env[2].Value != "" || env[2].ValueFrom.FieldRef.FieldPath != "metadata.uid" {
		t.Errorf("the container with sandboxd has %v", env)
	}
	if len(tpl.Pod.Spec.Containers[1].Env) != 3 || tpl.Pod.Spec.Containers[1].Env[0].Value != "mine" {
		t.Error("the template was changed")
	}
}
