package credentials

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// errForeignInitSecret: pods that read it would take nobody's /init.
var errForeignInitSecret = errors.New("it holds another secret than this cluster's; delete it, and the pods that have read it")

// EnsureInitSecret makes the Secret that the pods of a namespace give their
// sandboxd, unless it is there. Gateways derive the same from the seed in the
// system's namespace. The client must not read from a cache.
func EnsureInitSecret(ctx context.Context, c client.Client, system, namespace string) error {
	tokens, err := LoadTokens(ctx, c, system)
	if err != nil {
		return err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.InitSecretName},
		Immutable:  new(true),
		Data:       map[string][]byte{v1alpha1.InitSecretKey: []byte(tokens.Init(namespace))},
	}
	key := client.ObjectKeyFromObject(secret)
	err = c.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		there := &corev1.Secret{}
		if err = c.Get(ctx, key, there); err == nil && !hmac.Equal(there.Data[v1alpha1.InitSecretKey], secret.Data[v1alpha1.InitSecretKey]) {
			err = errForeignInitSecret
		}
	}
	if err != nil {
		return fmt.Errorf("making the Secret %s: %w", key, err)
	}
	return nil
}
