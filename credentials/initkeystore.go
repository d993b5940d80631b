package credentials

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// LoadInitKeys reads the private keys from their Secret in the given namespace, the
// system's own, and makes them first if there are none, and the ConfigMap with the
// public ones. Several processes may do so at once: all end up with the
// same keys. It makes none where the ConfigMap shows that there were others
// (ErrInitKeysLost): no gateway could initialise a pod that carries one of those. The
// client must not read from a cache.
func LoadInitKeys(ctx context.Context, c client.Client, namespace string) (*InitKeys, error) {
	keys, err := loadInitKeys(ctx, c, namespace)
	if err != nil {
		return nil, fmt.Errorf("loading the init keys: %w", err)
	}
	return keys, nil
}

func loadInitKeys(ctx context.Context, c client.Client, namespace string) (*InitKeys, error) {
	name := client.ObjectKey{Namespace: namespace, Name: initKeysName}
	published, err := readPublished(ctx, c, name)
	if err != nil {
		return nil, err
	}
	secret := &corev1.Secret{}
	err = c.Get(ctx, name, secret)
	if apierrors.IsNotFound(err) {
		if published != nil {
			return nil, fmt.Errorf("%w: the Secret %s is not there, but the ConfigMap %s is: restore the Secret, or delete the ConfigMap "+
				"and the pods with the label %s", ErrInitKeysLost, name, name, v1alpha1.LabelInitKey)
		}
		secret = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: initKeysName}, Data: newInitKeys().secretData(),
		}
		if err = c.Create(ctx, secret); apierrors.IsAlreadyExists(err) {
			err = c.Get(ctx, name, secret)
		}
	}
	if err != nil {
		return nil, err
	}
	keys, err := initKeysOf(secret)
	if err != nil {
		return nil, fmt.Errorf("Secret %s: %w", name, err)
	}
	if published == nil {
		if err := c.Create(ctx, publication(name, keys)); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("writing the public keys to the ConfigMap %s: %w", name, err)
		}
	}
	return keys, nil
}

// RotateInitKeys makes the next key the current one, and a new next one. Pods go on
// with the keys that they carry; keys that none carries any more are dropped, but for
// the one that was current until now. If it fails after its first write, new pods go
// on with that one until it is called again; that call then finishes this rotation and
// begins none, so that its begun is false. The client must not read from a cache.
func RotateInitKeys(ctx context.Context, c client.Client, namespace string) (keys *InitKeys, begun bool, err error) {
	keys, begun, err = rotateInitKeys(ctx, c, namespace)
	if err != nil {
		return nil, false, fmt.Errorf("rotating the init keys: %w", err)
	}
	return keys, begun, nil
}

// rotateInitKeys drops no key that the ConfigMap names: it rotates only if the ConfigMap has
// the Secret's current key. It reads the ConfigMap before the Secret and overwrites only what
// it read, so that of several runs at once none publishes a key that another has dropped.
func rotateInitKeys(ctx context.Context, c client.Client, namespace string) (keys *InitKeys, begun bool, err error) {
	name := client.ObjectKey{Namespace: namespace, Name: initKeysName}
	published, err := readPublished(ctx, c, name)
	if err != nil {
		return nil, false, err
	}
	secret := &corev1.Secret{}
	if err := c.Get(ctx, name, secret); err != nil {
		return nil, false, err
	}
	if keys, err = initKeysOf(secret); err != nil {
		return nil, false, fmt.Errorf("Secret %s: %w", name, err)
	}
	begun = published == nil || published.Data[dataCurrent] == keys.current
	if begun {
		carried, err := carriedKeys(ctx, c)
		if err != nil {
			return nil, false, err
		}
		keys = keys.rotated(carried)
		secret.Data = keys.secretData()
		if err := c.Update(ctx, secret); err != nil { // of the version that was read
			return nil, false, err
		}
	}
	public := publication(name, keys)
	if published == nil {
		err = c.Create(ctx, public)
	} else {
		public.ResourceVersion = published.ResourceVersion
		err = c.Update(ctx, public)
	}
	if err != nil {
		return nil, false, fmt.Errorf("writing the public keys to the ConfigMap %s: %w", name, err)
	}
	return keys, begun, nil
}

// carriedKeys are the IDs of the keys that pods carry.
func carriedKeys(ctx context.Context, c client.Client) (map[string]bool, error) {
	carried, pods := map[string]bool{}, &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	for {
		err := c.List(ctx, pods, client.HasLabels{v1alpha1.LabelInitKey}, client.Limit(listPage), client.Continue(pods.Continue))
		if err != nil {
			return nil, fmt.Errorf("looking for pods that carry a key: %w", err)
		}
		for i := range pods.Items {
			carried[pods.Items[i].Labels[v1alpha1.LabelInitKey]] = true
		}
		if pods.Continue == "" {
			return carried, nil
		}
	}
}

// readPublished reads the ConfigMap; nil if there is none.
func readPublished(ctx context.Context, c client.Reader, name client.ObjectKey) (*corev1.ConfigMap, error) {
	m := &corev1.ConfigMap{}
	err := c.Get(ctx, name, m)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return m, err
}

// publication is the ConfigMap with the public keys.
func publication(name client.ObjectKey, keys *InitKeys) *corev1.ConfigMap {
	data := map[string]string{dataCurrent: keys.current, dataNext: keys.next}
	for _, key := range []InitKey{keys.Current(), keys.Next()} {
		data[keyDataPrefix+key.ID] = key.Public
	}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}, Data: data}
}

// ReadInitKey reads which public key new pods get, from the ConfigMap in the given
// namespace, the system's own. The first gateway makes it.
func ReadInitKey(ctx context.Context, c client.Reader, namespace string) (InitKey, error) {
	name := client.ObjectKey{Namespace: namespace, Name: initKeysName}
	m, err := readPublished(ctx, c, name)
	if err != nil {
		return InitKey{}, fmt.Errorf("reading the public init key: %w", err)
	}
	if m == nil {
		return InitKey{}, fmt.Errorf("there is no ConfigMap %s with the public init key yet; the first gateway that starts makes it", name)
	}
	id := m.Data[dataCurrent]
	key := InitKey{ID: id, Public: m.Data[keyDataPrefix+id]}
	if key.ID == "" || key.Public == "" {
		return InitKey{}, fmt.Errorf("the ConfigMap %s does not hold its current key", name)
	}
	return key, nil
}
