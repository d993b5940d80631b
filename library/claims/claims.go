// Package claims lets a Go program of your own find the pods that sandboxes have: by a
// sandbox's ID, or all of a namespace. It reads by the client.Reader that it is given, so its
// answers are as new as that reader's, and it writes nothing. Sandlane's own processes do not
// use it.
package claims

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// ErrSandboxNotFound means that no pod backs a sandbox of this ID.
var ErrSandboxNotFound = errors.New("no pod backs this sandbox")

// SandboxBase is what a claimed pod alone says of its sandbox.
type SandboxBase struct {
	ID, ClaimID          string
	Namespace, Pool, Env string
	PodName              string
	PodUID               types.UID
	// Address is empty if the pod cannot be reached.
	Address string
	Phase   v1alpha1.PodPhase
	// ClaimedAt and StartedAt are zero if they are not noted.
	ClaimedAt, StartedAt time.Time
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
		PodName: pod.Name, PodUID: pod.UID, Address: v1alpha1.RoutableAddress(pod), Phase: v1alpha1.PhaseOf(pod),
		ClaimedAt: noted(v1alpha1.AnnotationClaimedAt), StartedAt: noted(v1alpha1.AnnotationStartedAt),
	}
	return b, b.ClaimID != "" && b.ID != ""
}

// FindClaimedPodBySandboxID returns the pod that backs the sandbox: both name each
// other. ErrSandboxNotFound if there is none.
func FindClaimedPodBySandboxID(ctx context.Context, reader client.Reader, id string) (*corev1.Pod, error) {
	s := &v1alpha1.Sandbox{}
	if err := reader.Get(ctx, client.ObjectKey{Name: id}, s); apierrors.IsNotFound(err) {
		return nil, ErrSandboxNotFound
	} else if err != nil {
		return nil, fmt.Errorf("reading sandbox %s: %w", id, err)
	}
	if s.Spec.Binding == nil {
		return nil, ErrSandboxNotFound
	}
	pod := &corev1.Pod{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: s.Spec.Namespace, Name: s.Spec.Binding.PodName}, pod)
	if apierrors.IsNotFound(err) || err == nil && !v1alpha1.Backs(pod, s) {
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
		switch p := &pods.Items[i]; v1alpha1.PhaseOf(p) {
		case v1alpha1.PodStarting, v1alpha1.PodRunning:
			if p.Annotations[v1alpha1.AnnotationClaim] != "" && p.DeletionTimestamp == nil {
				out = append(out, *p)
			}
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
