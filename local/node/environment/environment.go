// Package environment puts together the variables of a container's process on the local node, as a
// kubelet does: Resolve follows references to config maps, Secrets and the pod's own fields.
// Package node calls it; it starts nothing.
package environment

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sandlane/sandlane/local/node/status"
)

// DefaultPath is PATH where neither image nor container sets one.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// References follows what a pod's variables and volumes refer to, by live reads.
type References struct {
	Client kubernetes.Interface
	Pod    *corev1.Pod
	PodIP  string
}

// Variables are those of a container while they are put together.
type Variables struct {
	references References
	// Values are the variables by name; Set changes them.
	Values map[string]string
	order  []string
}

// Set sets a variable.
func (e *Variables) Set(name, value string) {
	if _, ok := e.Values[name]; !ok {
		e.order = append(e.order, name)
	}
	e.Values[name] = value
}

// List returns them as NAME=value, in the order in which they were first set.
func (e *Variables) List() []string {
	out := make([]string, 0, len(e.order))
	for _, name := range e.order {
		out = append(out, name+"="+e.Values[name])
	}
	return out
}

// Resolve puts together what a container's process gets: defaults (path is PATH's),
// then the image's variables, envFrom, and env, each over the one before. A reference
// that cannot be followed is an error, unless it is optional.
func Resolve(ctx context.Context, references References, c *corev1.Container, image map[string]string, path string) (*Variables, error) {
	e := &Variables{references: references, Values: map[string]string{}}
	e.Set("PATH", path)
	e.Set("HOSTNAME", references.Pod.Name)
	for _, name := range slices.Sorted(mapKeys(image)) {
		e.Set(name, image[name])
	}
	for _, from := range c.EnvFrom {
		if err := e.setFrom(ctx, from); err != nil {
			return nil, err
		}
	}
	for _, v := range c.Env {
		value, ok := Expand(v.Value, e.Values), true
		if v.ValueFrom != nil {
			var err error
			if value, ok, err = e.follow(ctx, v.ValueFrom); err != nil {
				return nil, fmt.Errorf("variable %s: %w", v.Name, err)
			}
		}
		if ok {
			e.Set(v.Name, value)
		}
	}
	return e, nil
}

func mapKeys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func (e *Variables) setFrom(ctx context.Context, from corev1.EnvFromSource) error {
	var data map[string]string
	var err error
	switch {
	case from.ConfigMapRef != nil:
		data, err = e.references.text(ctx, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
	case from.SecretRef != nil:
		data, err = e.references.Secret(ctx, from.SecretRef.Name, from.SecretRef.Optional)
	}
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(mapKeys(data)) {
		e.Set(from.Prefix+key, data[key])
	}
	return nil
}

func (e *Variables) follow(ctx context.Context, src *corev1.EnvVarSource) (value string, ok bool, err error) {
	switch {
	case src.FieldRef != nil:
		value, err = e.references.Field(src.FieldRef.FieldPath)
		return value, true, err
	case src.ConfigMapKeyRef != nil:
		ref := src.ConfigMapKeyRef
		data, err := e.references.text(ctx, ref.Name, ref.Optional)
		return pick(data, ref.Key, ref.Optional, err)
	case src.SecretKeyRef != nil:
		ref := src.SecretKeyRef
		data, err := e.references.Secret(ctx, ref.Name, ref.Optional)
		return pick(data, ref.Key, ref.Optional, err)
	}
	return "", false, fmt.Errorf("this kind of reference is not supported by the local node")
}

func pick(data map[string]string, key string, optional *bool, err error) (string, bool, error) {
	value, ok := data[key]
	if err == nil && !ok && (optional == nil || !*optional) {
		err = fmt.Errorf("there is no key %q", key)
	}
	return value, ok, err
}

// Field follows a downward-API reference.
func (r References) Field(path string) (string, error) {
	for prefix, m := range map[string]map[string]string{"metadata.labels": r.Pod.Labels, "metadata.annotations": r.Pod.Annotations} {
		if path == prefix { // as a file has them
			var lines []string
			for _, key := range slices.Sorted(mapKeys(m)) {
				lines = append(lines, fmt.Sprintf("%s=%q", key, m[key]))
			}
			return strings.Join(lines, "\n"), nil
		}
		prefix += "['"
		if rest, ok := strings.CutPrefix(path, prefix); ok {
			return m[strings.TrimSuffix(rest, "']")], nil
		}
	}
	switch path {
	case "metadata.name":
		return r.Pod.Name, nil
	case "metadata.namespace":
		return r.Pod.Namespace, nil
	case "metadata.uid":
		return string(r.Pod.UID), nil
	case "spec.nodeName":
		return r.Pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return r.Pod.Spec.ServiceAccountName, nil
	case "status.podIP", "status.podIPs":
		return r.PodIP, nil
	case "status.hostIP", "status.hostIPs":
		return status.HostIP, nil
	}
	return "", fmt.Errorf("field %q is not supported by the local node", path)
}

// ConfigMap returns a config map of the pod's namespace; an empty one for one that is optional and missing.
func (r References) ConfigMap(ctx context.Context, name string, optional *bool) (*corev1.ConfigMap, error) {
	m, err := r.Client.CoreV1().ConfigMaps(r.Pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return &corev1.ConfigMap{}, missing("config map", name, optional, err)
	}
	return m, nil
}

// text is what variables can have of a config map.
func (r References) text(ctx context.Context, name string, optional *bool) (map[string]string, error) {
	m, err := r.ConfigMap(ctx, name, optional)
	return m.Data, err
}

// Secret returns the data of a Secret of the pod's namespace; nothing for one that is optional and missing.
func (r References) Secret(ctx context.Context, name string, optional *bool) (map[string]string, error) {
	s, err := r.Client.CoreV1().Secrets(r.Pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, missing("secret", name, optional, err)
	}
	data := make(map[string]string, len(s.Data))
	for k, v := range s.Data {
		data[k] = string(v)
	}
	return data, nil
}

func missing(kind, name string, optional *bool, err error) error {
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	return fmt.Errorf("%s %q: %w", kind, name, err)
}

// Expand replaces $(NAME) by the value of a known variable; $$ is a $.
func Expand(s string, values map[string]string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '$' || i+1 == len(s) {
			out.WriteByte(s[i])
			continue
		}
		if s[i+1] == '$' {
			out.WriteByte('$')
			i++
			continue
		}
		if end := strings.IndexByte(s[i:], ')'); s[i+1] == '(' && end > 0 {
			if value, ok := values[s[i+2:i+end]]; ok {
				out.WriteString(value)
				i += end
				continue
			}
		}
		out.WriteByte('$')
	}
	return out.String()
}
