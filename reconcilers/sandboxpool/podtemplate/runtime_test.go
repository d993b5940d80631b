package podtemplate

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

func withSandboxd(c corev1.Container) *v1alpha1.SandboxTemplateSpec {
	return &v1alpha1.SandboxTemplateSpec{
		Runtimes: []v1alpha1.Runtime{v1alpha1.RuntimeSandboxd},
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{c}}},
	}
}

// Any image becomes a sandbox: sandboxd is its first process, starts the template's command,
// can be frozen, and has the port, the probe and the keys that gateways need.
func TestRuntimeSandboxd(t *testing.T) {
	image := corev1.Container{Name: "main", Image: "python:3.13-slim", Command: []string{"python3", "server.py"}, Args: []string{"--home=/data"}}
	spec := withSandboxd(image)
	rendered, err := withRuntimes(spec, "base:1")
	if err != nil {
		t.Fatal(err)
	}
	if len(spec.Template.Spec.InitContainers) != 0 || len(spec.Template.Spec.Containers[0].Ports) != 0 {
		t.Error("the template itself was changed")
	}
	tpl, err := Render(rendered, "")
	if err != nil {
		t.Fatal(err)
	}
	pod := tpl.NewPod(&v1alpha1.SandboxPool{})
	InitKey{ID: "1", Public: "key"}.Give(pod)
	first := pod.Spec.Containers[0]
	if got := strings.Join(append(first.Command, first.Args...), " "); got != "/sandlane/bin/sandboxd --sudo -- python3 server.py --home=/data" || first.Image != image.Image {
		t.Errorf("it runs %q of %s", got, first.Image)
	}
	if !v1alpha1.Freezable(&pod.Spec) || first.ReadinessProbe == nil || pod.Labels[v1alpha1.LabelInitKey] == "" {
		t.Errorf("it is no sandbox: %+v", pod)
	}
	if dirs := v1alpha1.EmptyDirs(&pod.Spec); len(dirs) != 0 {
		t.Errorf("its runtime is among its files: %v", dirs)
	}
	init := pod.Spec.InitContainers[0]
	if init.Image != "base:1" || !slices.Equal(init.Args, []string{"--install=/sandlane"}) || *init.SecurityContext.RunAsUser == 0 || len(init.SecurityContext.Capabilities.Drop) != 1 {
		t.Errorf("its init container: %+v", init)
	}
	if other, _ := withRuntimes(spec, "base:2"); func() string { o, _ := Render(other, ""); return o.Hash }() == tpl.Hash {
		t.Error("another sandboxd makes no other template")
	}
	if plain, err := withRuntimes(&v1alpha1.SandboxTemplateSpec{Template: spec.Template}, ""); err != nil || len(plain.Template.Spec.InitContainers) != 0 {
		t.Errorf("without the runtime: %+v, %v", plain, err)
	}
}

// What a template says itself stays: its probe, port, variables and user.
func TestRuntimeKeepsWhatTheTemplateSays(t *testing.T) {
	spec := withSandboxd(corev1.Container{
		Name: "main", Image: "i", Ports: []corev1.ContainerPort{{ContainerPort: v1alpha1.SandboxdPort}}, ReadinessProbe: &corev1.Probe{PeriodSeconds: 7},
		Env: []corev1.EnvVar{{Name: "SANDBOXD_ENV", Value: "LANG"}},
	})
	spec.Template.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To(int64(1000))}
	spec.Template.Spec.InitContainers = []corev1.Container{{Name: "own"}}
	rendered, err := withRuntimes(spec, "base:1")
	if err != nil {
		t.Fatal(err)
	}
	pod := rendered.Template.Spec
	first := pod.Containers[0]
	if len(first.Ports) != 1 || first.ReadinessProbe.PeriodSeconds != 7 || len(first.Env) != 1 || !slices.Equal(first.Args, []string{"--sudo"}) {
		t.Errorf("the first container: %+v", first)
	}
	if len(pod.InitContainers) != 2 || pod.InitContainers[1].Name != "own" || *pod.InitContainers[0].SecurityContext.RunAsUser != 1000 {
		t.Errorf("init containers: %+v", pod.InitContainers)
	}
}

func TestRuntimeRefused(t *testing.T) {
	taken := withSandboxd(corev1.Container{Name: "main"})
	taken.Template.Spec.Volumes = []corev1.Volume{{Name: runtimeName}}
	for _, c := range []struct {
		spec                *v1alpha1.SandboxTemplateSpec
		image, reason, says string
	}{
		{withSandboxd(corev1.Container{Name: "main", Args: []string{"x"}}), "base", "TemplateRefused", "entry point"},
		{withSandboxd(corev1.Container{Name: runtimeName}), "base", "TemplateRefused", "belongs to the runtime"},
		{taken, "base", "TemplateRefused", "belongs to the runtime"},
		{withSandboxd(corev1.Container{Name: "main"}), "", "RuntimeMissing", "--sandboxd-image"},
	} {
		_, err := withRuntimes(c.spec, c.image)
		var refused *Error
		if !errors.As(err, &refused) || refused.Reason != c.reason || !strings.Contains(refused.Message, c.says) {
			t.Errorf("%+v: %v, want %s with %q", c.spec.Template.Spec, err, c.reason, c.says)
		}
	}
}
