package podtemplate

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
	own, err := Render(spec, v1alpha1.ImagePolicyPoolDefault)
	if err != nil {
		t.Fatal(err)
	}
	idle, err := Render(spec, v1alpha1.ImagePolicyIdle)
	if err != nil {
		t.Fatal(err)
	}
	if own.Pod.Spec.Containers[0].Image != "real" || idle.Pod.Spec.Containers[0].Image != "idle" || own.Hash == idle.Hash {
		t.Errorf("images %q and %q, hashes %s and %s", own.Pod.Spec.Containers[0].Image, idle.Pod.Spec.Containers[0].Image, own.Hash, idle.Hash)
	}
	if again, _ := Render(spec, v1alpha1.ImagePolicyPoolDefault); again.Hash != own.Hash {
		t.Error("the hash of the same template differs")
	}
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("p", 63)}}
	pod := own.NewPod(pool)
	if pod.Labels["team"] != "a" || pod.Annotations["note"] != "b" {
		t.Errorf("the template's labels and annotations are lost: %+v", pod.ObjectMeta)
	}
	if v1alpha1.PhaseOf(pod) != v1alpha1.PodWarming || pod.Annotations[v1alpha1.AnnotationClaim] != "" || pod.Annotations[v1alpha1.AnnotationAddress] != "" || pod.Annotations[v1alpha1.AnnotationImage] != "" || pod.Labels[v1alpha1.LabelSandboxID] != "" || pod.Labels[v1alpha1.LabelRules] != "" {
		t.Errorf("a template forges a claim: %+v", pod.ObjectMeta)
	}
	if len(pod.GenerateName) != maxNameBase {
		t.Errorf("generateName of %d characters", len(pod.GenerateName))
	}
	spec.Template.Spec.TerminationGracePeriodSeconds, spec.Template.Spec.AutomountServiceAccountToken = &grace, &yes
	if own, _ = Render(spec, ""); *own.Pod.Spec.TerminationGracePeriodSeconds != 30 || !*own.Pod.Spec.AutomountServiceAccountToken {
		t.Error("what the template sets is overwritten")
	}
}

// A pod that is made with an idle image says which one a claim gives it, and is another
// pod once that is another.
func TestImageOfAClaim(t *testing.T) {
	made := func(image, idle string) (*Template, string) {
		t.Helper()
		spec := &v1alpha1.SandboxTemplateSpec{IdleImage: idle, Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}},
		}}
		tpl, err := Render(spec, v1alpha1.ImagePolicyIdle)
		if err != nil {
			t.Fatal(err)
		}
		return tpl, tpl.NewPod(&v1alpha1.SandboxPool{}).Annotations[v1alpha1.AnnotationImage]
	}
	first, image := made("real", "idle")
	second, next := made("next", "idle")
	if image != "real" || next != "next" || first.Hash == second.Hash {
		t.Errorf("a claim gives %q and %q, hashes %s and %s", image, next, first.Hash, second.Hash)
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

// The reconciler refuses what lets a sandbox reach its neighbours also where the API server
// has no rule against it, as with the definitions of an earlier version.
func TestTemplatesThatReachNeighbours(t *testing.T) {
	yes := true
	windows := &corev1.WindowsSecurityContextOptions{HostProcess: &yes}
	http := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "169.254.169.254"}}
	tcp := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "169.254.169.254"}}
	container := func(c corev1.Container) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}, c}}
	}
	const host = "the host of a probe or a lifecycle hook"
	for want, specs := range map[string][]corev1.PodSpec{
		"hostNetwork":           {{HostNetwork: true}},
		"hostPID":               {{HostPID: true}},
		"hostIPC":               {{HostIPC: true}},
		"shareProcessNamespace": {{ShareProcessNamespace: &yes}},
		"hostPort":              {container(corev1.Container{Ports: []corev1.ContainerPort{{HostPort: 1}}})},
		"hostProcess": {
			{SecurityContext: &corev1.PodSecurityContext{WindowsOptions: windows}},
			container(corev1.Container{SecurityContext: &corev1.SecurityContext{WindowsOptions: windows}}),
			{InitContainers: []corev1.Container{{SecurityContext: &corev1.SecurityContext{WindowsOptions: windows}}}},
		},
		host: {
			container(corev1.Container{LivenessProbe: &corev1.Probe{ProbeHandler: http}}),
			container(corev1.Container{ReadinessProbe: &corev1.Probe{ProbeHandler: tcp}}),
			container(corev1.Container{StartupProbe: &corev1.Probe{ProbeHandler: http}}),
			container(corev1.Container{Lifecycle: &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{TCPSocket: tcp.TCPSocket}}}),
			container(corev1.Container{Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: http.HTTPGet}}}),
			{InitContainers: []corev1.Container{{Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: http.HTTPGet}}}}},
		},
		"": {container(corev1.Container{
			LivenessProbe:   &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{}}},
			Lifecycle:       &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{}}},
			SecurityContext: &corev1.SecurityContext{WindowsOptions: &corev1.WindowsSecurityContextOptions{}},
		})},
	} {
		for i := range specs {
			if got := refused(&specs[i]); got != want {
				t.Errorf("%+v: refused for %q, want %q", specs[i], got, want)
			}
		}
	}
}
