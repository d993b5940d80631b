package local

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/credentials"
)

// The pools of `up`.
const (
	poolNamespace = metav1.NamespaceDefault

	echoName  = "echo"
	echoImage = "local/echo"
	echoPort  = 8000
)

// newPool is a pool of pods with one container; any request may claim from it.
func newPool(name string, replicas int, idle *metav1.Duration, main corev1.Container) *v1alpha1.SandboxPool {
	main.Name = "main"
	return &v1alpha1.SandboxPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: poolNamespace, Name: name},
		Spec: v1alpha1.SandboxPoolSpec{
			Replicas:     int32(replicas), //nolint:gosec // Validate bounds it
			IdleTimeout:  idle,
			FirstRequest: &v1alpha1.FirstRequest{Access: v1alpha1.AccessPublic},
			Template: &v1alpha1.SandboxTemplateSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				AutomountServiceAccountToken:  new(false),
				EnableServiceLinks:            new(false),
				TerminationGracePeriodSeconds: new(int64(1)),
				Containers:                    []corev1.Container{main},
			}}},
		},
	}
}

func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

func httpProbe(path string, port int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port)}},
		PeriodSeconds: 1,
	}
}

// echoPool is the pool that a first request without a pool claims from.
func echoPool(replicas int, idle time.Duration) *v1alpha1.SandboxPool {
	return newPool(echoName, replicas, &metav1.Duration{Duration: idle}, corev1.Container{
		Image: echoImage,
		Ports: []corev1.ContainerPort{{ContainerPort: echoPort}},
		Env: []corev1.EnvVar{
			fieldEnv("POD_NAME", "metadata.name"), fieldEnv("POD_UID", "metadata.uid"),
			fieldEnv("POD_NAMESPACE", "metadata.namespace"), fieldEnv("POD_IP", "status.podIP"),
		},
		ReadinessProbe: httpProbe("/", echoPort),
	})
}

// createPools makes both pools, and first the keys that their pods need: a gateway
// would make them too, but pods that are made before would be tried again after a while
// only.
func (u *up) createPools(ctx context.Context) error {
	if _, err := credentials.LoadInitKeys(ctx, u.api, SystemNamespace); err != nil {
		return err
	}
	for _, p := range []*v1alpha1.SandboxPool{
		echoPool(u.o.PoolSize, u.o.IdleTimeout),
		u.byName(basePool(u.o.BasePoolSize, u.dataPlane.isolation)),
	} {
		if err := u.api.Create(ctx, p); err != nil {
			return fmt.Errorf("create the pool %s: %w", p.Name, err)
		}
	}
	return nil
}
