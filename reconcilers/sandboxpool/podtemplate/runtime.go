package podtemplate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// A template with the runtime sandboxd becomes a pod of which the first container runs any
// image of Linux:
//
//	init container "sandlane-sandboxd"   copies sandboxd and its sudo into a volume
//	volume "sandlane-sandboxd"           seen read-only below /sandlane, and as /usr/local/bin/sudo
//	first container                      runs sandboxd, which starts the template's command
//
// The image of the init container is part of the template's hash: another one replaces pods
// that are not claimed.
const (
	runtimeName = "sandlane-sandboxd"
	runtimeDir  = "/sandlane"
	sudoPath    = "/usr/local/bin/sudo"
	// runtimeUser runs the init container where the template names no user: it is no user of
	// any image, and satisfies the restricted Pod Security standard.
	runtimeUser = 65532
	// runtimeSize bounds the volume; sandboxd has some 15 MB.
	runtimeSize = "64Mi"
	// envOfCommands names the variables that commands get.
	envOfCommands = "SANDBOXD_ENV"
)

// withRuntimes returns the template with what its runtimes add. image is that of the init
// container; without one a template with runtimes is refused.
func withRuntimes(spec *v1alpha1.SandboxTemplateSpec, image string) (*v1alpha1.SandboxTemplateSpec, error) {
	if !slices.Contains(spec.Runtimes, v1alpha1.RuntimeSandboxd) {
		return spec, nil
	}
	if image == "" {
		return nil, &Error{Reason: "RuntimeMissing", Message: "the template has the runtime sandboxd, and the controller was started without --sandboxd-image"}
	}
	spec = spec.DeepCopy()
	pod := &spec.Template.Spec
	first := &pod.Containers[0]
	if len(first.Command) == 0 && len(first.Args) > 0 {
		return nil, &Error{Reason: "TemplateRefused", Message: fmt.Sprintf(
			"container %s has args and no command: with the runtime sandboxd name the image's entry point as command, since Kubernetes does not tell it", first.Name)}
	}
	if slices.ContainsFunc(pod.InitContainers, func(c corev1.Container) bool { return c.Name == runtimeName }) ||
		slices.ContainsFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == runtimeName }) ||
		slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == runtimeName }) {
		return nil, &Error{Reason: "TemplateRefused", Message: "the name " + runtimeName + " belongs to the runtime"}
	}
	size := resource.MustParse(runtimeSize)
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: runtimeName, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}}})
	pod.InitContainers = append([]corev1.Container{runtimeInit(pod, image)}, pod.InitContainers...)
	addSandboxd(first)
	return spec, nil
}

// runtimeInit is the container that copies sandboxd. It asks for what the first container asks
// for, which adds nothing to the pod's sum and satisfies a quota.
func runtimeInit(pod *corev1.PodSpec, image string) corev1.Container {
	user, group := int64(runtimeUser), int64(runtimeUser)
	for _, named := range []*int64{podUser(pod), containerUser(&pod.Containers[0])} {
		if named != nil && *named != 0 {
			user, group = *named, *named
		}
	}
	return corev1.Container{
		Name: runtimeName, Image: image, Args: []string{"--install=" + runtimeDir},
		Resources:    *pod.Containers[0].Resources.DeepCopy(),
		VolumeMounts: []corev1.VolumeMount{{Name: runtimeName, MountPath: runtimeDir}},
		SecurityContext: &corev1.SecurityContext{
			RunAsUser: &user, RunAsGroup: &group, RunAsNonRoot: ptr.To(true),
			AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
}

func podUser(pod *corev1.PodSpec) *int64 {
	if pod.SecurityContext == nil {
		return nil
	}
	return pod.SecurityContext.RunAsUser
}

func containerUser(c *corev1.Container) *int64 {
	if c.SecurityContext == nil {
		return nil
	}
	return c.SecurityContext.RunAsUser
}

// addSandboxd makes sandboxd the first process of a container. What the template says itself
// (a readiness probe, the variables of commands) stays.
func addSandboxd(c *corev1.Container) {
	args := []string{"--sudo"}
	if len(c.Command) > 0 {
		args = slices.Concat(args, []string{"--"}, c.Command, c.Args)
	}
	c.Command, c.Args = []string{runtimeDir + "/bin/sandboxd"}, args
	if !v1alpha1.RunsSandboxd(&corev1.PodSpec{Containers: []corev1.Container{*c}}) {
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: "envd", ContainerPort: v1alpha1.SandboxdPort})
	}
	if c.ReadinessProbe == nil {
		c.ReadinessProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/health", Port: intstr.FromInt32(v1alpha1.SandboxdPort)}},
			PeriodSeconds: 1,
		}
	}
	if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == envOfCommands }) {
		c.Env = append(c.Env, corev1.EnvVar{Name: envOfCommands, Value: "*"})
	}
	c.VolumeMounts = append(c.VolumeMounts,
		corev1.VolumeMount{Name: runtimeName, MountPath: runtimeDir, ReadOnly: true},
		corev1.VolumeMount{Name: runtimeName, MountPath: sudoPath, SubPath: "bin/sudo", ReadOnly: true})
}
