package status

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Patch writes the status and nothing else. The UID makes a pod of the
// same name a conflict; metadata is never sent, so no label is put back.
func Patch(ctx context.Context, pods corev1client.PodInterface, pod *corev1.Pod, st corev1.PodStatus) error {
	raw, err := json.Marshal(st)
	if err != nil {
		return err
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		return err
	}
	for _, name := range []string{"reason", "message"} {
		if _, ok := fields[name]; !ok {
			fields[name] = nil // take the old one away
		}
	}
	delete(fields, "qosClass") // the API server's
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": fields})
	if err != nil {
		return err
	}
	_, err = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
