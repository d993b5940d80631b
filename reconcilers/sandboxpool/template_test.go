package sandboxpool

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

func TestRender(t *testing.T) {
	grace, yes := int64(30), true
	spec := &v1alpha1.SandboxTemplateSpec{IdleImage: "idle", Template: corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{"team": "a", v1alpha1.LabelPhase: "running", v1alpha1.LabelSandboxID: "x", v1alpha1.LabelRules: v1alpha1.RulesOwn},
			Annotations: map[string]string{"note": "b", v1alpha1.AnnotationClaim: "forged", v1alpha1.AnnotationAddress: "10.0.0.9", v1alpha1.AnnotationImage: "forged"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "real"}}},
	}}
	own, err := render(spec, v1alpha1.ImagePolicyPoolDefault)
	if err != nil {
		t.Fatal(err)
	}
	idle, err := render(spec, v1alpha1.ImagePolicyIdle)
	if err != nil {
		t.Fatal(err)
	}
	if own.pod.Spec.Containers[0].Image != "real" || idle.pod.Spec.Containers[0].Image != "idle" || own.hash == idle.hash {
		t.Errorf("images %q and %q, hashes %s and %s", own.pod.Spec.Containers[0].Image, idle.pod.Spec.Containers[0].Image, own.hash, idle.hash)
	}
	if again, _ := render(spec, v1alpha1.ImagePolicyPoolDefault); again.hash != own.hash {
		t.Error("the hash of the same template differs")
	}
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("p", 63)}}
	pod := newPod(pool, own)
	if pod.Labels["team"] != "a" || pod.Annotations["note"] != "b" {
		t.Errorf("the template's labels and annotations are lost: %+v", pod.ObjectMeta)
	}
	if v1alpha1.PhaseOf(pod) != v1alpha1.PodWarming || claimed(pod) || pod.Annotations[v1alpha1.AnnotationAddress] != "" || pod.Annotations[v1alpha1.AnnotationImage] != "" || pod.Labels[v1alpha1.LabelSandboxID] != "" || pod.Labels[v1alpha1.LabelRules] != "" {
		t.Errorf("a template forges a claim: %+v", pod.ObjectMeta)
	}
	if len(pod.GenerateName) != maxNameBase {
		t.Errorf("generateName of %d characters", len(pod.GenerateName))
	}
	spec.Template.Spec.TerminationGracePeriodSeconds, spec.Template.Spec.AutomountServiceAccountToken = &grace, &yes
	if own, _ = render(spec, ""); *own.pod.Spec.TerminationGracePeriodSeconds != 30 || !*own.pod.Spec.AutomountServiceAccountToken {
		t.Error("what the template sets is overwritten")
	}
}

// A pod that is made with an idle image says which one a claim gives it, and is another
// pod once that is another.
func TestImageOfAClaim(t *testing.T) {
	made := func(image, idle string) (*poolTemplate, string) {
		t.Helper()
		spec := &v1alpha1.SandboxTemplateSpec{IdleImage: idle, Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}},
		}}
		tpl, err := render(spec, v1alpha1.ImagePolicyIdle)
		if err != nil {
			t.Fatal(err)
		}
		return tpl, newPod(&v1alpha1.SandboxPool{}, tpl).Annotations[v1alpha1.AnnotationImage]
	}
	first, image := made("real", "idle")
	second, next := made("next", "idle")
	if image != "real" || next != "next" || first.hash == second.hash {
		t.Errorf("a claim gives %q and %q, hashes %s and %s", image, next, first.hash, second.hash)
	}
	for _, idle := range []string{"", "real"} {
		if _, image := made("real", idle); image != "" {
			t.Errorf("with the idle image %q a claim gives %q", idle, image)
		}
	}
}

func TestRefusedFields(t *testing.T) {
	yes := true
	for want, p := range map[string]corev1.PodSpec{
		"":                      {},
		"hostNetwork":           {HostNetwork: true},
		"hostPID":               {HostPID: true},
		"hostIPC":               {HostIPC: true},
		"shareProcessNamespace": {ShareProcessNamespace: &yes},
		"hostPort":              {InitContainers: []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: 80}}}}},
	} {
		if got := refused(&p); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestIdleContainerImages(t *testing.T) {
	pool := newLagging(t, 0).pool()
	pool.Spec.Template.IdleImage, pool.Spec.PodCreationImagePolicy = "pause", v1alpha1.ImagePolicyIdle
	if images, err := IdleContainerImages(pool, nil); err != nil || images["main"] != "pause" {
		t.Errorf("%v, %v", images, err)
	}
}
