// Package volumes makes the folders of a pod's volumes on the local node, and says where its
// containers see them. It mounts nothing; package node calls it.
package volumes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/local/node/initspec"
)

// Mounts are the container's mounts; emptyDir folders are made on first
// use and live as long as the pod. The volume with the service account's token
// that the API server adds to each pod is left out: sandboxes get none.
func Mounts(podDir string, pod *corev1.Pod, c *corev1.Container, full bool) (binds []initspec.Bind, err error) {
	for _, m := range c.VolumeMounts {
		if strings.HasPrefix(m.Name, "kube-api-access-") {
			continue
		}
		for i := range pod.Spec.Volumes {
			v := &pod.Spec.Volumes[i]
			if v.Name != m.Name {
				continue
			}
			if v.EmptyDir == nil {
				return nil, fmt.Errorf("volume %q: the local node knows only emptyDir volumes", v.Name)
			}
			if !full {
				return nil, fmt.Errorf("volume %q: volumes need full isolation", v.Name)
			}
			if m.SubPath != "" || m.SubPathExpr != "" {
				return nil, fmt.Errorf("volume %q: subPath is not supported by the local node", v.Name)
			}
			switch place := filepath.Clean("/" + m.MountPath); {
			case place == "/", place == "/proc", place == "/dev", place == "/sys", strings.HasPrefix(place, "/proc/"):
				return nil, fmt.Errorf("volume %q: nothing can be mounted at %s on the local node", v.Name, place)
			}
			dir := filepath.Join(podDir, "volumes", v.Name)
			if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o777)); err != nil {
				return nil, fmt.Errorf("volume %q: %w", v.Name, err)
			}
			binds = append(binds, initspec.Bind{Source: dir, Target: m.MountPath, ReadOnly: m.ReadOnly})
		}
	}
	return binds, nil
}
