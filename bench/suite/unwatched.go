package suite

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/sandlane/sandlane/api/crds"
	"github.com/sandlane/sandlane/api/v1alpha1"
)

// The bare writes of a floor go to objects that no gateway watches, or gateways
// would do work for the floor: pods without a pool, and a copy of the Sandbox
// under a name of its own.
const (
	unwatchedKind   = "BareSandbox"
	unwatchedPlural = "baresandboxes"
)

// AllowUnwatched installs the copy of the Sandbox's definition.
func (c *Cluster) AllowUnwatched() error {
	all, err := crds.All()
	if err != nil {
		return err
	}
	for _, d := range all {
		if d.Spec.Names.Kind != "Sandbox" {
			continue
		}
		d.Name = unwatchedPlural + "." + d.Spec.Group
		n := &d.Spec.Names
		n.Kind, n.ListKind, n.Plural, n.Singular, n.ShortNames, n.Categories = unwatchedKind, unwatchedKind+"List", unwatchedPlural, "baresandbox", nil, nil
		copied := envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{d}}
		if _, err := envtest.InstallCRDs(c.Config, copied); err != nil {
			return fmt.Errorf("make a copy of the Sandbox's definition: %w", err)
		}
		return nil
	}
	return fmt.Errorf("there is no definition of Sandboxes to copy")
}

// CreateUnwatched creates an object of the copy with the contents of a Sandbox.
func (c *Cluster) CreateUnwatched(ctx context.Context, s *v1alpha1.Sandbox) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	if err != nil {
		return fmt.Errorf("make a bare sandbox: %w", err)
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(unwatchedKind))
	return c.Client.Create(ctx, u)
}

// MakeUnwatched makes a pod like one of a pool that lacks only MakeReady, but which belongs
// to no pool.
func (c *Cluster) MakeUnwatched(ctx context.Context, pool string) (*corev1.Pod, error) {
	return c.makePod(ctx, pool, idleName(), func(p *corev1.Pod) { delete(p.Labels, v1alpha1.LabelPool) })
}
