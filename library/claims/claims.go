// Package claims lets a Go program of your own find the pods that sandboxes have: by a
// sandbox's ID, or all of a namespace. It reads by the client.Reader that it is given, so its
// answers are as new as that reader's, and it writes nothing. Sandlane's own processes do not
// use it.
package claims

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// ErrSandboxNotFound means that no pod backs a sandbox of this ID.
var ErrSandboxNotFound = errors.New("no pod backs this sandbox")

// SandboxBase is what a claimed pod, and its Sandbox, say of a sandbox.
type SandboxBase struct {
	ID, ClaimID          string
	Namespace, Pool, Env string
	PodName              string
	PodUID               types.UID
	// Address is empty if the pod cannot be reached, or is not to be: it is over or being deleted,
	// and another pod may get its address.
	Address string
	Phase   v1alpha1.PodPhase
	// ClaimedAt and StartedAt are zero if they are not noted.
	ClaimedAt, StartedAt time.Time
	// Images are those of the pod's containers, by container.
	Images map[string]string
	// CPU and Memory are the sums of the containers' limits; zero if one has none.
	CPU, Memory resource.Quantity

	// Team, User and Metadata only the Sandbox says: SandboxBaseOf. User is the
	// metadata's value of the key "user".
	Team, User string
	Metadata   map[string]string
}

// SandboxBaseFromPod reads a pod; false if it is not claimed. Whether a sandbox
// names the pod too, only its object says (v1alpha1.Backs).
func SandboxBaseFromPod(pod *corev1.Pod) (SandboxBase, bool) {
	noted := func(key string) time.Time {
		at, _ := time.Parse(time.RFC3339Nano, pod.Annotations[key])
		return at
	}
	b := SandboxBase{
		ID: pod.Labels[v1alpha1.LabelSandboxID], ClaimID: pod.Annotations[v1alpha1.AnnotationClaim],
		Namespace: pod.Namespace, Pool: pod.Labels[v1alpha1.LabelPool], Env: pod.Labels[v1alpha1.LabelEnv],
		PodName: pod.Name, PodUID: pod.UID, Phase: v1alpha1.PhaseOf(pod),
		ClaimedAt: noted(v1alpha1.AnnotationClaimedAt), StartedAt: noted(v1alpha1.AnnotationStartedAt),
		Images: map[string]string{}, CPU: limit(pod, corev1.ResourceCPU), Memory: limit(pod, corev1.ResourceMemory),
	}
	if serves(pod) {
		b.Address = v1alpha1.RoutableAddress(pod)
	}
	for i := range pod.Spec.Containers {
		b.Images[pod.Spec.Containers[i].Name] = pod.Spec.Containers[i].Image
	}
	return b, b.ClaimID != "" && b.ID != ""
}

// serves reports whether a claimed pod is not over.
func serves(pod *corev1.Pod) bool {
	phase := v1alpha1.PhaseOf(pod)
	return (phase == v1alpha1.PodStarting || phase == v1alpha1.PodRunning) && pod.DeletionTimestamp == nil && !v1alpha1.Finished(pod)
}

// SandboxBaseOf reads a pod and its Sandbox; false unless both name each other and the sandbox
// has not ended.
func SandboxBaseOf(pod *corev1.Pod, s *v1alpha1.Sandbox) (SandboxBase, bool) {
	b, claimed := SandboxBaseFromPod(pod)
	if !claimed || s.Spec.End != nil || !v1alpha1.Backs(pod, s) {
		return SandboxBase{}, false
	}
	b.Team, b.User, b.Metadata = s.Spec.Team, s.Spec.Metadata["user"], maps.Clone(s.Spec.Metadata)
	return b, true
}

// limit is the sum of the containers' limits; zero if one has none.
func limit(pod *corev1.Pod, name corev1.ResourceName) (sum resource.Quantity) {
	for i := range pod.Spec.Containers {
		q, ok := pod.Spec.Containers[i].Resources.Limits[name]
		if !ok {
			return resource.Quantity{}
		}
		sum.Add(q)
	}
	return sum
}

// FindClaimedPodBySandboxID returns the pod that backs the sandbox: both name each
// other. ErrSandboxNotFound if there is none in the namespace, or the sandbox or its pod is over; an
// empty namespace means any.
func FindClaimedPodBySandboxID(ctx context.Context, reader client.Reader, namespace, id string) (*corev1.Pod, error) {
	s := &v1alpha1.Sandbox{}
	if err := reader.Get(ctx, client.ObjectKey{Name: id}, s); apierrors.IsNotFound(err) {
		return nil, ErrSandboxNotFound
	} else if err != nil {
		return nil, fmt.Errorf("reading sandbox %s: %w", id, err)
	}
	if s.Spec.Binding == nil || s.Spec.End != nil || namespace != "" && s.Spec.Namespace != namespace {
		return nil, ErrSandboxNotFound
	}
	pod := &corev1.Pod{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: s.Spec.Namespace, Name: s.Spec.Binding.PodName}, pod)
	if apierrors.IsNotFound(err) || err == nil && !(v1alpha1.Backs(pod, s) && serves(pod)) {
		return nil, ErrSandboxNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("reading pod %s: %w", s.Spec.Binding.PodName, err)
	}
	return pod, nil
}

// ListClaimedPods lists the namespace's pods that carry a claim and are not over.
func ListClaimedPods(ctx context.Context, reader client.Reader, namespace string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := reader.List(ctx, &pods, client.InNamespace(namespace), client.HasLabels{v1alpha1.LabelPool, v1alpha1.LabelSandboxID}); err != nil {
		return nil, fmt.Errorf("listing claimed pods: %w", err)
	}
	var out []corev1.Pod
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Annotations[v1alpha1.AnnotationClaim] != "" && serves(p) {
			out = append(out, *p)
		}
	}
	return out, nil
}

// ListClaimedPodsWithFilter lists those whose sandbox belongs to the team and has
// the user in its metadata under the key "user"; empty means any.
func ListClaimedPodsWithFilter(ctx context.Context, reader client.Reader, namespace, team, user string) ([]corev1.Pod, error) {
	pods, err := ListClaimedPods(ctx, reader, namespace)
	if err != nil {
		return nil, err
	}
	var out []corev1.Pod
	for i := range pods {
		s := &v1alpha1.Sandbox{}
		err := reader.Get(ctx, client.ObjectKey{Name: pods[i].Labels[v1alpha1.LabelSandboxID]}, s)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading the sandbox of pod %s: %w", pods[i].Name, err)
		}
		if err == nil && v1alpha1.Backs(&pods[i], s) && (team == "" || s.Spec.Team == team) && (user == "" || s.Spec.Metadata["user"] == user) {
			out = append(out, pods[i])
		}
	}
	return out, nil
}
