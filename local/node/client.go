package node

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/sandlane/sandlane/local/node/status"
)

// guardedPods is the client that virtual-kubelet gets. The library's status
// write sends its copy of the whole pod, which puts old labels back and undoes
// claims, and it deletes pods when a grace period is over whether their
// processes are dead or not, and once more after the node did; here the first
// becomes a patch of the status, and both are left to the pod's record while
// there is one.
type guardedPods struct {
	corev1client.PodsGetter
	provider *provider
}

func (g guardedPods) Pods(namespace string) corev1client.PodInterface {
	return guardedNamespace{g.PodsGetter.Pods(namespace), g.provider}
}

type guardedNamespace struct {
	corev1client.PodInterface
	provider *provider
}

// UpdateStatus writes only the status, and for a pod with a record nothing:
// the record writes its own.
func (g guardedNamespace) UpdateStatus(ctx context.Context, pod *corev1.Pod, _ metav1.UpdateOptions) (*corev1.Pod, error) {
	if g.provider.recorded(pod.UID) {
		return pod, nil
	}
	err := status.Patch(ctx, g.PodInterface, pod, pod.Status)
	if apierrors.IsConflict(err) { // another pod has the name
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), pod.Name)
	}
	return pod, err
}

// Delete does nothing for a pod with a record, which deletes the object once its
// processes are dead.
func (g guardedNamespace) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	if p := opts.Preconditions; p != nil && p.UID != nil && g.provider.recorded(*p.UID) {
		return nil
	}
	return g.PodInterface.Delete(ctx, name, opts)
}
