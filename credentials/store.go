package credentials

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// helmRelease is the annotation that Helm gives to what a release makes.
const helmRelease = "meta.helm.sh/release-name"

// Store makes, lists and revokes API keys. It is safe for concurrent use.
type Store struct {
	client    client.Client
	namespace string
}

// NewStore returns a store of keys in Secrets of the given namespace, which has
// nothing else. A client without a cache is best: a cache would hold every Secret.
func NewStore(c client.Client, namespace string) *Store {
	return &Store{client: c, namespace: namespace}
}

// Create makes a key for a team and the namespace whose sandboxes it sees, which must
// exist, and returns it. The key itself is stored nowhere: this is the only time it is seen.
// It ends with the namespace.
func (s *Store) Create(ctx context.Context, team, namespace string) (string, Key, error) {
	if team == "" || len(validation.IsValidLabelValue(team)) > 0 {
		return "", Key{}, fmt.Errorf("team %q: must be 1 to 63 of letters, digits, dash, dot and underscore, beginning and ending with a letter or digit", team)
	}
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return "", Key{}, fmt.Errorf("namespace %q: %s", namespace, problems[0])
	}
	ns := &corev1.Namespace{}
	if err := s.client.Get(ctx, client.ObjectKey{Name: namespace}, ns); err != nil {
		return "", Key{}, fmt.Errorf("reading the namespace of an API key: %w", err)
	}
	for {
		key := newKey()
		id, _ := keyID(key)
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.namespace,
				Name:      secretPrefix + id,
				Labels:    map[string]string{v1alpha1.LabelAPIKey: id, v1alpha1.LabelTeam: team},

				OwnerReferences: []metav1.OwnerReference{owner(ns)},
			},
			Immutable: new(true),
			Data:      secretData(key, namespace),
		}
		err := s.client.Create(ctx, secret)
		if apierrors.IsAlreadyExists(err) {
			continue // another key has this ID
		}
		if err != nil {
			return "", Key{}, fmt.Errorf("storing an API key: %w", err)
		}
		return key, keyOf(secret), nil
	}
}

// List returns all keys, oldest first.
func (s *Store) List(ctx context.Context) ([]Key, error) {
	var secrets corev1.SecretList
	if err := s.client.List(ctx, &secrets, client.InNamespace(s.namespace), client.HasLabels{v1alpha1.LabelAPIKey}); err != nil {
		return nil, fmt.Errorf("listing API keys: %w", err)
	}
	keys := make([]Key, len(secrets.Items))
	for i := range secrets.Items {
		keys[i] = keyOf(&secrets.Items[i])
	}
	slices.SortFunc(keys, func(a, b Key) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return keys, nil
}

// Revoke deletes a key by its ID. ErrKeyNotFound means that there is none. It returns the Helm
// release that the key is from, which may make it again; empty if none is known.
func (s *Store) Revoke(ctx context.Context, id string) (release string, err error) {
	if len(id) != idLength || !isHex(id) {
		return "", fmt.Errorf("%w: an ID is the first %d digits of a key", ErrKeyNotFound, idLength)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: secretPrefix + id}}
	if s.client.Get(ctx, client.ObjectKeyFromObject(secret), secret) == nil { // else the key goes all the same
		release = secret.Annotations[helmRelease]
	}
	err = s.client.Delete(ctx, secret)
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("%w: %s", ErrKeyNotFound, id)
	}
	if err != nil {
		return "", fmt.Errorf("deleting API key %s: %w", id, err)
	}
	return release, nil
}

func keyOf(s *corev1.Secret) Key {
	return Key{
		ID:        s.Labels[v1alpha1.LabelAPIKey],
		Team:      s.Labels[v1alpha1.LabelTeam],
		Namespace: string(s.Data[dataNamespace]),
		Created:   s.CreationTimestamp.Time,
	}
}
