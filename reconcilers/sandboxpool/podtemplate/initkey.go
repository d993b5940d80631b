package podtemplate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// InitKey is the public key with which sandboxd checks that a request to /init is signed by
// a gateway. The zero value is none.
type InitKey struct {
	// ID names the key to gateways, Public is the key in base64.
	ID, Public string
}

// The variables that sandboxd reads: its own, which a template cannot set.
const (
	envInitKey = "SANDBOXD_INIT_KEY"
	envPodUID  = "SANDBOXD_POD_UID"
)

// Give puts the key into a pod that is not created yet: the public part and the
// pod's UID into the environment of sandboxd, the ID into a label. None of it is a
// secret. It is no part of the template's hash, so that a rotation replaces no pods.
func (key InitKey) Give(pod *corev1.Pod) {
	if key == (InitKey{}) {
		return
	}
	pod.Labels[v1alpha1.LabelInitKey] = key.ID
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if !v1alpha1.RunsSandboxd(&corev1.PodSpec{Containers: []corev1.Container{*c}}) {
			continue
		}
		c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == envInitKey || e.Name == envPodUID })
		c.Env = append(c.Env, corev1.EnvVar{Name: envInitKey, Value: key.Public},
			corev1.EnvVar{Name: envPodUID, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}})
	}
}
