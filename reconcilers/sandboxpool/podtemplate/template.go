// Package podtemplate renders what a pool makes its pods from: the pod template that a user
// writes, what its runtimes add, and the defaults of pool pods. It reads and writes nothing.
package podtemplate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Error is a template that no pod can be made from, or a pool that a plugin refuses, which
// only the user can change. Reason is that of the pool's condition.
type Error struct{ Reason, Message string }

func (e *Error) Error() string { return e.Message }

// Template is what a pool makes its pods from. Nil is a template that cannot be read.
type Template struct {
	Spec *v1alpha1.SandboxTemplateSpec
	// Pod is the template with the defaults of pool pods, and Hash its identity.
	Pod  corev1.PodTemplateSpec
	Hash string
	// Claimed is the image that a claim gives the first container; empty if that is
	// created with it.
	Claimed string
}

// HashOrEmpty is empty for nil.
func (t *Template) HashOrEmpty() string {
	if t == nil {
		return ""
	}
	return t.Hash
}

// SpecOrNil is nil for nil.
func (t *Template) SpecOrNil() *v1alpha1.SandboxTemplateSpec {
	if t == nil {
		return nil
	}
	return t.Spec
}

// New makes a pool's pod template of what its spec says. sandboxdImage is the image that
// holds sandboxd, for templates with that runtime; empty if there is none. What only the user
// can change is an *Error.
func New(spec *v1alpha1.SandboxTemplateSpec, policy v1alpha1.PodCreationImagePolicy, sandboxdImage string) (*Template, error) {
	if what := refused(&spec.Template.Spec); what != "" {
		return nil, &Error{Reason: "TemplateRefused", Message: "the pod template sets " + what + ", which would let a sandbox reach its neighbours"}
	}
	if len(spec.Template.Spec.Containers) == 0 {
		return nil, &Error{Reason: "TemplateRefused", Message: "the pod template has no containers"}
	}
	spec, err := withRuntimes(spec, sandboxdImage)
	if err != nil {
		return nil, err
	}
	return Render(spec, policy)
}

// refused names the first field that a pool pod may not set; empty if none.
func refused(p *corev1.PodSpec) string {
	switch {
	case p.HostNetwork:
		return "hostNetwork"
	case p.HostPID:
		return "hostPID"
	case p.HostIPC:
		return "hostIPC"
	case ptr.Deref(p.ShareProcessNamespace, false):
		return "shareProcessNamespace"
	case p.SecurityContext != nil && hostProcess(p.SecurityContext.WindowsOptions):
		return "hostProcess"
	}
	for _, c := range append(append([]corev1.Container(nil), p.InitContainers...), p.Containers...) {
		if c.SecurityContext != nil && hostProcess(c.SecurityContext.WindowsOptions) {
			return "hostProcess"
		}
		if asksAnotherHost(&c) {
			return "the host of a probe or a lifecycle hook"
		}
		for _, port := range c.Ports {
			if port.HostPort != 0 {
				return "hostPort"
			}
		}
	}
	return ""
}

func hostProcess(o *corev1.WindowsSecurityContextOptions) bool {
	return o != nil && ptr.Deref(o.HostProcess, false)
}

// asksAnotherHost reports whether the kubelet would send a probe or a hook of the
// container to an address that the template names, instead of to the pod.
func asksAnotherHost(c *corev1.Container) bool {
	var http []*corev1.HTTPGetAction
	var tcp []*corev1.TCPSocketAction
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p != nil {
			http, tcp = append(http, p.HTTPGet), append(tcp, p.TCPSocket)
		}
	}
	if c.Lifecycle != nil {
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				http, tcp = append(http, h.HTTPGet), append(tcp, h.TCPSocket)
			}
		}
	}
	return slices.ContainsFunc(http, func(a *corev1.HTTPGetAction) bool { return a != nil && a.Host != "" }) ||
		slices.ContainsFunc(tcp, func(a *corev1.TCPSocketAction) bool { return a != nil && a.Host != "" })
}

// Render applies the defaults of pool pods: a claim's end waits for no grace
// period, and a sandbox sees neither services nor a token of the cluster.
func Render(spec *v1alpha1.SandboxTemplateSpec, policy v1alpha1.PodCreationImagePolicy) (*Template, error) {
	t := *spec.Template.DeepCopy()
	t.Spec.TerminationGracePeriodSeconds = or(t.Spec.TerminationGracePeriodSeconds, 1)
	t.Spec.EnableServiceLinks = or(t.Spec.EnableServiceLinks, false)
	t.Spec.AutomountServiceAccountToken = or(t.Spec.AutomountServiceAccountToken, false)
	claimed := ""
	if first := &t.Spec.Containers[0]; policy == v1alpha1.ImagePolicyIdle && spec.IdleImage != "" && spec.IdleImage != first.Image {
		claimed, first.Image = first.Image, spec.IdleImage
	}
	raw, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("hashing the pod template: %w", err)
	}
	if len(spec.PostStartHooks) > 0 {
		raw = append(raw, EncodeHooks(spec.PostStartHooks)...)
	}
	raw = append(raw, claimed...)
	sum := sha256.Sum256(raw)
	return &Template{Spec: spec, Pod: t, Hash: hex.EncodeToString(sum[:8]), Claimed: claimed}, nil
}

func or[T any](p *T, fallback T) *T {
	if p != nil {
		return p
	}
	return &fallback
}

// maxNameBase leaves room for the five characters that the API server adds to a
// generateName within the 63 of a host name.
const maxNameBase = 58

// NewPod is the object that a pool pod is created as, but for its owner.
func (t *Template) NewPod(pool *v1alpha1.SandboxPool) *corev1.Pod {
	base := pool.Name
	if len(base) >= maxNameBase {
		base = base[:maxNameBase-1]
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: base + "-",
			Namespace:    pool.Namespace,
			Finalizers:   []string{v1alpha1.FinalizerPod},
			Labels:       map[string]string{v1alpha1.LabelPool: pool.Name, v1alpha1.LabelPhase: string(v1alpha1.PodWarming)},
			Annotations:  map[string]string{v1alpha1.AnnotationTemplateHash: t.Hash},
		},
		Spec: *t.Pod.Spec.DeepCopy(),
	}
	CopyKeys(&pod.Labels, t.Pod.Labels, ofPods)
	CopyKeys(&pod.Annotations, t.Pod.Annotations, ofPods)
	if pool.Spec.Egress != "" {
		pod.Labels[v1alpha1.LabelEgress] = string(pool.Spec.Egress)
	}
	if len(t.Spec.PostStartHooks) > 0 {
		pod.Annotations[v1alpha1.AnnotationPostStartHooks] = EncodeHooks(t.Spec.PostStartHooks)
	}
	if t.Claimed != "" {
		pod.Annotations[v1alpha1.AnnotationImage] = t.Claimed
	}
	return pod
}
