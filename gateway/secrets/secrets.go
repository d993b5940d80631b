// Package secrets keeps the secrets of the REST API: values that egress puts into requests
// (docs/egress.md). New makes a [Store], which package gateway gives to package restapi.
//
// A secret is a SandboxSecret in the tenant's namespace, with its value sealed for egress
// processes (package egress/seal): a gateway sees a value when it is posted, and cannot read it
// again. The object's name is made from the secret's, so that the API server lets one of two
// creates win; its UID is the secret's ID. Each write of a value tests the version that was
// read, so no version has two values.
package secrets

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/egress/keys"
	"github.com/sandlane/sandlane/egress/seal"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/kubeclient"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

const (
	// maxSecrets bounds those of a namespace: egress processes keep all in memory.
	maxSecrets = 1000
	// tries bounds how often a write of a value starts over because another came first.
	tries = 5
)

// Store implements restapi.Secrets. It is safe for concurrent use.
type Store struct {
	api  client.Client
	keys func(context.Context) (*keys.Public, error)
}

var _ restapi.Secrets = (*Store)(nil)

// New makes a Store. publicKeys reads egress's (keys.ReadPublic).
func New(api client.Client, publicKeys func(context.Context) (*keys.Public, error)) *Store {
	return &Store{api, publicKeys}
}

// Create implements restapi.Secrets.
func (s *Store) Create(ctx context.Context, namespace, name, value string, metadata map[string]string) (restapi.Secret, error) {
	sealed, err := s.seal(ctx, namespace, name, value)
	if err != nil {
		return restapi.Secret{}, fmt.Errorf("create a secret: %w", err)
	}
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SandboxSecretList"))
	if err := s.api.List(ctx, all, client.InNamespace(namespace)); err != nil {
		return restapi.Secret{}, fmt.Errorf("count secrets: %w", err)
	}
	if len(all.Items) >= maxSecrets {
		return restapi.Secret{}, restapi.ErrSecretLimit
	}
	x := &v1alpha1.SandboxSecret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.SecretObject(name)},
		Spec:       v1alpha1.SandboxSecretSpec{Name: name, Version: 1, Metadata: metadata, Sealed: sealed, UpdatedAt: now()},
	}
	switch err := s.api.Create(ctx, x); {
	case apierrors.IsAlreadyExists(err):
		return restapi.Secret{}, restapi.ErrSecretExists
	case kubeclient.QuotaExceeded(err):
		return restapi.Secret{}, fmt.Errorf("%w: %w", restapi.ErrSecretLimit, err)
	case err != nil:
		return restapi.Secret{}, fmt.Errorf("create a secret: %w", err)
	}
	return describe(x), nil
}

// Get implements restapi.Secrets.
func (s *Store) Get(ctx context.Context, namespace string, of restapi.SecretRef) (restapi.Secret, error) {
	x, err := s.find(ctx, namespace, of)
	if err != nil {
		return restapi.Secret{}, err
	}
	return describe(x), nil
}

// List implements restapi.Secrets.
func (s *Store) List(ctx context.Context, namespace string) ([]restapi.Secret, error) {
	if _, err := s.publicKeys(ctx); err != nil {
		return nil, err
	}
	found, err := s.list(ctx, namespace)
	all := make([]restapi.Secret, 0, len(found))
	for i := range found {
		all = append(all, describe(&found[i]))
	}
	return all, err
}

// Update implements restapi.Secrets.
func (s *Store) Update(ctx context.Context, namespace string, of restapi.SecretRef, value string, metadata *map[string]string) (restapi.Secret, error) {
	for range tries {
		x, err := s.find(ctx, namespace, of)
		if err != nil {
			return restapi.Secret{}, err
		}
		sealed, err := s.seal(ctx, namespace, x.Spec.Name, value)
		if err != nil {
			return restapi.Secret{}, fmt.Errorf("update a secret: %w", err)
		}
		spec := v1alpha1.SandboxSecretSpec{Name: x.Spec.Name, Version: x.Spec.Version + 1, Metadata: x.Spec.Metadata, Sealed: sealed, UpdatedAt: now()}
		if metadata != nil {
			spec.Metadata = *metadata
		}
		err = s.api.Patch(ctx, x, writes.For(x.UID).
			Test("/spec/version", x.Spec.Version).
			Test("/metadata/deletionTimestamp", nil).
			Set("/spec", spec).
			Build())
		switch verdict := writes.Judge(err); {
		case verdict == writes.Applied:
			return describe(x), nil
		case verdict != writes.TestFailed && verdict != writes.Gone && verdict != writes.Conflict:
			return restapi.Secret{}, fmt.Errorf("update a secret: %w", err)
		}
	}
	return restapi.Secret{}, restapi.ErrSecretBusy
}

// Delete implements restapi.Secrets.
func (s *Store) Delete(ctx context.Context, namespace string, of restapi.SecretRef) error {
	x, err := s.find(ctx, namespace, of)
	if err != nil {
		return err
	}
	err = s.api.Delete(ctx, x, client.Preconditions{UID: &x.UID})
	if v := writes.Judge(err); v == writes.Gone || v == writes.Conflict { // another has its name now
		return restapi.ErrNoSecret
	}
	if err != nil {
		return fmt.Errorf("delete a secret: %w", err)
	}
	return nil
}

// find reads a secret of the namespace.
func (s *Store) find(ctx context.Context, namespace string, of restapi.SecretRef) (*v1alpha1.SandboxSecret, error) {
	if _, err := s.publicKeys(ctx); err != nil {
		return nil, err
	}
	if of.ID != "" {
		all, err := s.list(ctx, namespace)
		for i := range all {
			if idOf(&all[i]) == of.ID {
				return &all[i], nil
			}
		}
		if err == nil {
			err = restapi.ErrNoSecret
		}
		return nil, err
	}
	x := &v1alpha1.SandboxSecret{}
	err := s.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.SecretObject(of.Name)}, x)
	switch {
	case apierrors.IsNotFound(err) || err == nil && x.Spec.Name != of.Name:
		return nil, restapi.ErrNoSecret
	case err != nil:
		return nil, fmt.Errorf("read a secret: %w", err)
	}
	return x, nil
}

func (s *Store) list(ctx context.Context, namespace string) ([]v1alpha1.SandboxSecret, error) {
	all := &v1alpha1.SandboxSecretList{}
	if err := s.api.List(ctx, all, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list secrets: %w", err)
	}
	return all.Items, nil
}

func (s *Store) publicKeys(ctx context.Context) (*keys.Public, error) {
	public, err := s.keys(ctx)
	if errors.Is(err, keys.ErrNone) {
		return nil, fmt.Errorf("%w: %w", restapi.ErrNoEgress, err)
	}
	return public, err
}

// seal seals a value for the secret of that name.
func (s *Store) seal(ctx context.Context, namespace, name, value string) ([]byte, error) {
	public, err := s.publicKeys(ctx)
	if err != nil {
		return nil, err
	}
	return public.Seal.Seal(seal.OfSecret(namespace, name), []byte(value))
}

func now() metav1.MicroTime { return metav1.NewMicroTime(time.Now().Truncate(time.Microsecond)) }

func idOf(x *v1alpha1.SandboxSecret) string { return strings.ReplaceAll(string(x.UID), "-", "") }

func describe(x *v1alpha1.SandboxSecret) restapi.Secret {
	return restapi.Secret{
		ID: idOf(x), Name: x.Spec.Name, Version: x.Spec.Version, Metadata: x.Spec.Metadata,
		CreatedAt: x.CreationTimestamp.Time, UpdatedAt: x.Spec.UpdatedAt.Time,
	}
}
