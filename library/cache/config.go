package cache

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Config says which objects the informers have. The zero value means Sandlane's kinds and
// the pods of pools, in all namespaces.
type Config struct {
	// Namespace limits them to the sandboxes, pools, envs, checkpoints and pods of one
	// namespace. Empty means all.
	Namespace string
	// Selector limits pools, envs, templates and checkpoints by their labels. Nil means all.
	Selector labels.Selector
	// SystemNamespace adds the Secrets and ConfigMaps of this namespace. If it is empty, a
	// read of one is an error.
	SystemNamespace string
	// PersistentVolumes adds the PersistentVolumes.
	PersistentVolumes bool
}

// BuildCacheConfig returns the options of a manager's cache with informers for the objects
// of c and no others. A read of another kind is an error; by default it would start an
// informer of the whole cluster's objects.
//
// Namespaces are selected by field, so that a read of a name in another namespace returns
// "not found" and no special error.
func BuildCacheConfig(c Config) ctrlcache.Options {
	poolPods, err := labels.NewRequirement(v1alpha1.LabelPool, selection.Exists, nil)
	if err != nil {
		panic("cache: " + err.Error()) // the label is a constant
	}
	ours := ctrlcache.ByObject{Label: c.Selector, Field: inNamespace("metadata.namespace", c.Namespace)}
	by := map[client.Object]ctrlcache.ByObject{
		&v1alpha1.Sandbox{}:         {Field: inNamespace(v1alpha1.FieldNamespace, c.Namespace)},
		&v1alpha1.SandboxPool{}:     ours,
		&v1alpha1.SandboxEnv{}:      ours,
		&v1alpha1.Checkpoint{}:      ours,
		&v1alpha1.SandboxTemplate{}: {Label: c.Selector},
		&corev1.Pod{}: {
			Label: labels.NewSelector().Add(*poolPods), Field: ours.Field, Transform: stripPod,
		},
	}
	if c.SystemNamespace != "" {
		system := ctrlcache.ByObject{Field: inNamespace("metadata.namespace", c.SystemNamespace)}
		by[&corev1.Secret{}], by[&corev1.ConfigMap{}] = system, system
	}
	if c.PersistentVolumes {
		by[&corev1.PersistentVolume{}] = ctrlcache.ByObject{}
	}
	return ctrlcache.Options{
		ByObject: by, ReaderFailOnMissingInformer: true, DefaultTransform: ctrlcache.TransformStripManagedFields(),
	}
}

// inNamespace selects the objects whose field is the namespace; nil if that is empty.
func inNamespace(field, namespace string) fields.Selector {
	if namespace == "" {
		return nil
	}
	return fields.OneTermEqualSelector(field, namespace)
}

// stripPod removes from a pod what no reader of sandboxes needs: it is most of a pod's size,
// and its variables may be secrets. It keeps what shows whether the pod runs sandboxd and
// can be frozen.
func stripPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	pod.ManagedFields = nil
	s := &pod.Spec
	s.Volumes, s.Affinity, s.Tolerations, s.TopologySpreadConstraints = nil, nil, nil, nil
	s.ImagePullSecrets, s.HostAliases, s.ReadinessGates, s.SchedulingGates = nil, nil, nil, nil
	for _, containers := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range containers {
			c := &containers[i]
			c.Env, c.EnvFrom, c.VolumeMounts, c.VolumeDevices, c.Lifecycle = nil, nil, nil, nil, nil
		}
	}
	return pod, nil
}
