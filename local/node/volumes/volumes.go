// Package volumes makes the folders of a pod's volumes on the local node, and says where its
// containers see them. It mounts nothing; package node calls it.
package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/local/node/environment"
	"github.com/sandlane/sandlane/local/node/initspec"
)

// Mounts are the container's mounts. emptyDir folders are made on first use and live as long
// as the pod; files of config maps, Secrets and the downward API are written at each start of
// a container, and do not change while it runs. The volume with the service account's token
// that the API server adds to each pod is left out: sandboxes get none.
func Mounts(ctx context.Context, podDir string, references environment.References, c *corev1.Container, full bool) (binds []initspec.Bind, err error) {
	for _, m := range c.VolumeMounts {
		if strings.HasPrefix(m.Name, "kube-api-access-") {
			continue
		}
		for i := range references.Pod.Spec.Volumes {
			v := &references.Pod.Spec.Volumes[i]
			if v.Name != m.Name {
				continue
			}
			if !full {
				return nil, fmt.Errorf("volume %q: volumes need full isolation", v.Name)
			}
			bind, err := mount(ctx, filepath.Join(podDir, "volumes", v.Name), references, v, m)
			if err != nil {
				return nil, fmt.Errorf("volume %q: %w", v.Name, err)
			}
			binds = append(binds, bind)
		}
	}
	return binds, nil
}

func mount(ctx context.Context, dir string, references environment.References, v *corev1.Volume, m corev1.VolumeMount) (initspec.Bind, error) {
	bind := initspec.Bind{Source: dir, Target: m.MountPath, SubPath: m.SubPath, ReadOnly: m.ReadOnly}
	if m.SubPathExpr != "" {
		return bind, errors.New("subPathExpr is not supported by the local node")
	}
	switch place := filepath.Clean("/" + m.MountPath); {
	case place == "/", place == "/proc", place == "/dev", place == "/sys", strings.HasPrefix(place, "/proc/"):
		return bind, fmt.Errorf("nothing can be mounted at %s on the local node", place)
	}
	if v.EmptyDir != nil {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o777)); err != nil {
			return bind, err
		}
		return bind, makeBelow(dir, m.SubPath)
	}
	all, err := filesOf(ctx, references, v)
	if err != nil {
		return bind, err
	}
	bind.ReadOnly = true
	return bind, write(dir, all)
}

// makeBelow makes a folder in a volume unless something of its name is there. Containers may
// have written to the volume: links do not lead out of it.
func makeBelow(dir, below string) error {
	if below == "" {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if _, err := root.Lstat(below); errors.Is(err, fs.ErrNotExist) {
		err = root.MkdirAll(below, 0o755)
		if err == nil {
			err = root.Chmod(below, 0o777)
		}
		return err
	}
	return nil
}

// write puts files into a folder that containers only read, each by one rename: another
// container of the pod may be reading them.
func write(dir string, all []file) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range all {
		if !filepath.IsLocal(f.path) {
			return fmt.Errorf("the path %q leads out of the volume", f.path)
		}
		path := filepath.Join(dir, f.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		unfinished, err := os.CreateTemp(filepath.Dir(path), ".new-")
		if err != nil {
			return err
		}
		_, err = unfinished.WriteString(f.content)
		if err = errors.Join(err, unfinished.Chmod(f.mode), unfinished.Close()); err == nil {
			err = os.Rename(unfinished.Name(), path)
		}
		if err != nil {
			return errors.Join(err, os.Remove(unfinished.Name()))
		}
	}
	return nil
}
