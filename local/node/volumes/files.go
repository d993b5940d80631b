package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/local/node/environment"
)

// file is one file of a volume.
type file struct {
	path, content string
	mode          fs.FileMode
}

// The mode of files for which a volume names none, as Kubernetes has it.
const defaultMode = 0o644

// filesOf are the files of a volume whose contents the cluster has.
func filesOf(ctx context.Context, references environment.References, v *corev1.Volume) ([]file, error) {
	switch {
	case v.ConfigMap != nil:
		return configMap(ctx, references, v.ConfigMap.Name, v.ConfigMap.Optional, v.ConfigMap.Items, v.ConfigMap.DefaultMode)
	case v.Secret != nil:
		return secret(ctx, references, v.Secret.SecretName, v.Secret.Optional, v.Secret.Items, v.Secret.DefaultMode)
	case v.DownwardAPI != nil:
		return fields(references, v.DownwardAPI.Items, v.DownwardAPI.DefaultMode)
	case v.Projected == nil:
		return nil, errors.New("the local node knows emptyDir, configMap, secret, downwardAPI and projected volumes")
	}
	var all []file
	for _, source := range v.Projected.Sources {
		var some []file
		var err error
		switch {
		case source.ConfigMap != nil:
			some, err = configMap(ctx, references, source.ConfigMap.Name, source.ConfigMap.Optional, source.ConfigMap.Items, v.Projected.DefaultMode)
		case source.Secret != nil:
			some, err = secret(ctx, references, source.Secret.Name, source.Secret.Optional, source.Secret.Items, v.Projected.DefaultMode)
		case source.DownwardAPI != nil:
			some, err = fields(references, source.DownwardAPI.Items, v.Projected.DefaultMode)
		default:
			err = errors.New("the local node projects configMap, secret and downwardAPI alone")
		}
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

func configMap(ctx context.Context, references environment.References, name string, optional *bool, items []corev1.KeyToPath, mode *int32) ([]file, error) {
	m, err := references.ConfigMap(ctx, name, optional)
	if err != nil {
		return nil, err
	}
	data := map[string]string{}
	maps.Copy(data, m.Data)
	for key, value := range m.BinaryData {
		data[key] = string(value)
	}
	return chosen(data, "config map "+name, optional, items, mode)
}

func secret(ctx context.Context, references environment.References, name string, optional *bool, items []corev1.KeyToPath, mode *int32) ([]file, error) {
	data, err := references.Secret(ctx, name, optional)
	if err != nil {
		return nil, err
	}
	return chosen(data, "secret "+name, optional, items, mode)
}

// chosen are the files of the named items, or of all keys if none is named.
func chosen(data map[string]string, what string, optional *bool, items []corev1.KeyToPath, mode *int32) (all []file, err error) {
	if len(items) == 0 {
		for _, key := range slices.Sorted(maps.Keys(data)) {
			all = append(all, file{key, data[key], modeOf(nil, mode)})
		}
		return all, nil
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok {
			if optional != nil && *optional {
				continue
			}
			return nil, fmt.Errorf("%s has no key %q", what, item.Key)
		}
		all = append(all, file{item.Path, value, modeOf(item.Mode, mode)})
	}
	return all, nil
}

func fields(references environment.References, items []corev1.DownwardAPIVolumeFile, mode *int32) (all []file, err error) {
	for _, item := range items {
		if item.FieldRef == nil {
			return nil, fmt.Errorf("%s: resources are not told by the local node", item.Path)
		}
		value, err := references.Field(item.FieldRef.FieldPath)
		if err != nil {
			return nil, err
		}
		all = append(all, file{item.Path, value, modeOf(item.Mode, mode)})
	}
	return all, nil
}

func modeOf(own, all *int32) fs.FileMode {
	for _, mode := range []*int32{own, all} {
		if mode != nil {
			return fs.FileMode(*mode).Perm()
		}
	}
	return defaultMode
}
