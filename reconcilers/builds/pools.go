package builds

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

const (
	// startFor is how long the first pod of a pool may take, with the pull of its image.
	startFor = 10 * time.Minute
	// cpuShare is the part of the limit of CPUs that is requested: most sandboxes wait for a
	// model most of the time.
	cpuShare = 10
	// readyEvery is the time between two runs of the ready command, readyTimeout bounds one.
	readyEvery, readyTimeout = 1, 30 // seconds
)

// builderPool is the pool of a build's builder: one pod of the base.
func (r *Reconciler) builderPool(b *v1alpha1.TemplateBuild) *v1alpha1.SandboxPool {
	pool := r.pool(b, v1alpha1.BuilderPool(b.Name), b.Status.Base)
	pool.Spec.MaxPods = 1 // the one that is claimed is not replaced
	return pool
}

// templatePool is the pool of the template's sandboxes.
func (r *Reconciler) templatePool(b *v1alpha1.TemplateBuild) *v1alpha1.SandboxPool {
	pool := r.pool(b, v1alpha1.TemplatePool(b.Name), b.Status.Image)
	pool.Labels[v1alpha1.LabelTemplate] = b.Spec.TemplateID
	c := &pool.Spec.Template.Template.Spec.Containers[0]
	if start := b.Spec.Recipe.StartCommand; start != "" {
		c.Command = []string{"/bin/sh", "-c", start}
	}
	if ready := b.Spec.Recipe.ReadyCommand; ready != "" {
		c.StartupProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", ready}}},
			PeriodSeconds: readyEvery, TimeoutSeconds: readyTimeout, FailureThreshold: int32(startFor / time.Second / readyEvery),
		}
	}
	return pool
}

// pool is what both have in common. sandboxd is root in it, whatever user the image names,
// because it acts for all users.
func (r *Reconciler) pool(b *v1alpha1.TemplateBuild, name, image string) *v1alpha1.SandboxPool {
	memory := *resource.NewQuantity(int64(b.Spec.MemoryMB)<<20, resource.BinarySI)
	pool := &v1alpha1.SandboxPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: name, Labels: map[string]string{v1alpha1.LabelBuild: b.Name}},
		Spec: v1alpha1.SandboxPoolSpec{
			Replicas: 1, StartupTimeout: &metav1.Duration{Duration: startFor}, IdleTimeout: &metav1.Duration{},
			Template: &v1alpha1.SandboxTemplateSpec{
				Runtimes: []v1alpha1.Runtime{v1alpha1.RuntimeSandboxd},
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
					Containers: []corev1.Container{{
						Name: "main", Image: image,
						SecurityContext: &corev1.SecurityContext{RunAsUser: ptr.To(int64(0)), RunAsGroup: ptr.To(int64(0))},
						Resources: corev1.ResourceRequirements{
							Limits: corev1.ResourceList{
								corev1.ResourceCPU: *resource.NewQuantity(int64(b.Spec.CPUCount), resource.DecimalSI), corev1.ResourceMemory: memory,
							},
							Requests: corev1.ResourceList{
								corev1.ResourceCPU: *resource.NewMilliQuantity(int64(b.Spec.CPUCount)*1000/cpuShare, resource.DecimalSI), corev1.ResourceMemory: memory,
							},
						},
					}},
				}},
			},
		},
	}
	if r.PullSecret != "" {
		pool.Spec.Template.Template.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: r.PullSecret}}
	}
	return pool
}

// refusedImage says why an image may not be run; empty: it may. A gateway writes it: one that was
// taken over must not choose the image of any pod, nor may a tenant that can write its namespace's
// builds run another namespace's image.
func (r *Reconciler) refusedImage(ctx context.Context, namespace, image string) (why string, err error) {
	ns := &corev1.Namespace{}
	if err := r.Get(ctx, client.ObjectKey{Name: namespace}, ns); err != nil {
		return "", fmt.Errorf("reading the namespace of a build: %w", err)
	}
	// As gateways name it (gateway/builds/store).
	repository, err := name.NewRepository(r.Registry + "/" + string(ns.UID))
	if err != nil {
		return "", fmt.Errorf("naming the repository of a namespace: %w", err)
	}
	if digest, inside := strings.CutPrefix(image, repository.Name()+"@sha256:"); !inside || len(digest) != 64 || ns.UID == "" {
		return fmt.Sprintf("the image is not one of %s, by digest", repository), nil
	}
	return "", nil
}
