package sandboxpool

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool/podtemplate"
)

func templateWith(t *testing.T, containers ...corev1.Container) *podtemplate.Template {
	t.Helper()
	spec := &v1alpha1.SandboxTemplateSpec{}
	spec.Template.Spec.Containers = containers
	tpl, err := podtemplate.New(spec, "", "")
	if err != nil {
		t.Fatal(err)
	}
	return tpl
}

// Pods with sandboxd are not made without a key; others need none.
func TestInitKeyIsNeeded(t *testing.T) {
	away := errors.New("away")
	with := templateWith(t, corev1.Container{Name: "envd", Ports: []corev1.ContainerPort{{ContainerPort: v1alpha1.SandboxdPort}}})
	without := templateWith(t, corev1.Container{Name: "main"})
	asked := 0
	r := &SandboxPoolReconciler{}
	if _, err := r.initKey(t.Context(), with); !errors.Is(err, errNoInitKeys) {
		t.Errorf("without keys: %v", err)
	}
	r.InitKey = func(context.Context) (podtemplate.InitKey, error) { asked++; return podtemplate.InitKey{}, away }
	if _, err := r.initKey(t.Context(), with); !errors.Is(err, away) {
		t.Errorf("while the keys are away: %v", err)
	}
	if key, err := r.initKey(t.Context(), without); err != nil || key != (podtemplate.InitKey{}) || asked != 1 {
		t.Errorf("a pod without sandboxd: %v, %v, asked %d times", key, err, asked)
	}
}

func TestIdleContainerImages(t *testing.T) {
	pool := newLagging(t, 0).pool()
	pool.Spec.Template.IdleImage, pool.Spec.PodCreationImagePolicy = "pause", v1alpha1.ImagePolicyIdle
	if images, err := IdleContainerImages(pool, nil); err != nil || images["main"] != "pause" {
		t.Errorf("%v, %v", images, err)
	}
}
