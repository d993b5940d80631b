package sandboxpool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// templateError is a template that no pod can be made from, or a pool that a
// plugin refuses, which only the user can change.
type templateError struct{ reason, message string }

func (e *templateError) Error() string { return e.message }

// poolTemplate is what a pool makes its pods from.
type poolTemplate struct {
	spec *v1alpha1.SandboxTemplateSpec
	// pod is the template with the defaults of pool pods, and hash its identity.
	pod  corev1.PodTemplateSpec
	hash string
	// claimed is the image that a claim gives the first container; empty if that is
	// created with it.
	claimed string
}

func (t *poolTemplate) hashOrEmpty() string {
	if t == nil {
		return ""
	}
	return t.hash
}

func (t *poolTemplate) specOrNil() *v1alpha1.SandboxTemplateSpec {
	if t == nil {
		return nil
	}
	return t.spec
}

// template resolves the pool's template; nil for no pool. Errors that the user
// must mend are templateErrors.
func (r *SandboxPoolReconciler) template(ctx context.Context, pool *v1alpha1.SandboxPool) (*poolTemplate, error) {
	if pool == nil {
		return nil, nil
	}
	spec := pool.Spec.Template
	if ref := pool.Spec.TemplateRef; spec == nil && ref != nil {
		var t v1alpha1.SandboxTemplate
		err := r.Client.Get(ctx, client.ObjectKey{Name: ref.Name}, &t, client.UnsafeDisableDeepCopy) // it is only read
		if apierrors.IsNotFound(err) {
			return nil, &templateError{"TemplateNotFound", fmt.Sprintf("there is no SandboxTemplate %q", ref.Name)}
		}
		if err != nil {
			return nil, fmt.Errorf("reading template %s: %w", ref.Name, err)
		}
		spec = &t.Spec
	}
	if spec == nil {
		return nil, &templateError{"TemplateMissing", "the pool has neither template nor templateRef"}
	}
	if what := refused(&spec.Template.Spec); what != "" {
		return nil, &templateError{"TemplateRefused", "the pod template sets " + what + ", which would let a sandbox reach its neighbours"}
	}
	if len(spec.Template.Spec.Containers) == 0 {
		return nil, &templateError{"TemplateRefused", "the pod template has no containers"}
	}
	spec, err := withRuntimes(spec, r.SandboxdImage)
	if err != nil {
		return nil, err
	}
	return render(spec, pool.Spec.PodCreationImagePolicy)
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

// render applies the defaults of pool pods: a claim's end waits for no grace
// period, and a sandbox sees neither services nor a token of the cluster.
func render(spec *v1alpha1.SandboxTemplateSpec, policy v1alpha1.PodCreationImagePolicy) (*poolTemplate, error) {
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
		raw = append(raw, encodeHooks(spec.PostStartHooks)...)
	}
	raw = append(raw, claimed...)
	sum := sha256.Sum256(raw)
	return &poolTemplate{spec: spec, pod: t, hash: hex.EncodeToString(sum[:8]), claimed: claimed}, nil
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

// newPod is the object that a pool pod is created as, but for its owner.
func newPod(pool *v1alpha1.SandboxPool, t *poolTemplate) *corev1.Pod {
	base := pool.Name
	if len(base) >= maxNameBase {
		base = base[:maxNameBase-1]
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: base + "-",
			Namespace:    pool.Namespace,
			Finalizers:   []string{FinalizerName},
			Labels:       map[string]string{v1alpha1.LabelPool: pool.Name, v1alpha1.LabelPhase: string(v1alpha1.PodWarming)},
			Annotations:  map[string]string{v1alpha1.AnnotationTemplateHash: t.hash},
		},
		Spec: *t.pod.Spec.DeepCopy(),
	}
	copyKeys(&pod.Labels, t.pod.Labels, ofPods)
	copyKeys(&pod.Annotations, t.pod.Annotations, ofPods)
	if len(t.spec.PostStartHooks) > 0 {
		pod.Annotations[v1alpha1.AnnotationPostStartHooks] = encodeHooks(t.spec.PostStartHooks)
	}
	if t.claimed != "" {
		pod.Annotations[v1alpha1.AnnotationImage] = t.claimed
	}
	return pod
}
