package sandboxpool

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// InitKey is the public key with which sandboxd checks that a request to /init is signed by
// a gateway.
type InitKey struct {
	// ID names the key to gateways, Public is the key in base64.
	ID, Public string
}

// The variables that sandboxd reads: its own, which a template cannot set.
const (
	envInitKey = "SANDBOXD_INIT_KEY"
	envPodUID  = "SANDBOXD_POD_UID"
)

var errNoInitKeys = errors.New("this controller has no init keys, which pods with sandboxd need")

// initKey returns the key for new pods of a template; the zero value if they do not
// run sandboxd. It is asked for by each batch of pods, and not kept: a rotation counts
// for the next one.
func (r *SandboxPoolReconciler) initKey(ctx context.Context, tpl *poolTemplate) (InitKey, error) {
	if !v1alpha1.RunsSandboxd(&tpl.pod.Spec) {
		return InitKey{}, nil
	}
	if r.InitKey == nil {
		return InitKey{}, errNoInitKeys
	}
	return r.InitKey(ctx)
}

// giveInitKey puts the key into a pod that is not created yet: the public part and the
// pod's UID into the environment of sandboxd, the ID into a label. None of it is a
// secret. It is no part of the template's hash, so that a rotation replaces no pods.
func giveInitKey(pod *corev1.Pod, key InitKey) {
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
