package uninstall

import (
	"context"
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/credentials/issuer"
)

// Labels of the pods that must be gone before leases may go.
const (
	labelApp      = "app"
	appGateway    = "sandlane-gateway"
	appController = "sandlane-controller"
	appEgress     = "sandlane-egress"
)

// ControllerLease is the lease of the controllers' election.
const ControllerLease = "sandlane-controller"

// ownKeys are what gateways make for themselves.
var ownKeys = []client.Object{
	&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "token-seed"}},
	&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "init-keys"}},
	&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "init-keys"}},
	&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "egress-keys"}},
	&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "egress-keys"}},
}

// Leases returns when the leases of gateways and controllers are deleted, and what
// else no chart knows of.
func Leases(ctx context.Context, o Options) error {
	o.complete()
	err := o.until(ctx, func() (string, error) {
		var pods corev1.PodList
		if err := o.Client.List(ctx, &pods, client.InNamespace(o.Namespace)); err != nil {
			return "", fmt.Errorf("list the pods of gateways: %w", err)
		}
		var left []string
		for i := range pods.Items {
			if app := pods.Items[i].Labels[labelApp]; app == appGateway || app == appController || app == appEgress {
				left = append(left, pods.Items[i].Name)
			}
		}
		return strings.Join(left, ", "), nil
	})
	if err != nil {
		return err
	}
	var leases coordinationv1.LeaseList
	if err := o.Client.List(ctx, &leases, client.InNamespace(o.Namespace)); err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	for i := range leases.Items {
		lease := &leases.Items[i]
		gateway := lease.Labels[v1alpha1.LabelGateway] != "" || lease.Annotations[v1alpha1.AnnotationGatewayAddress] != ""
		egress := lease.Labels[v1alpha1.LabelEgressLease] != "" || lease.Annotations[v1alpha1.AnnotationEgressAddress] != ""
		if !gateway && !egress && lease.Name != ControllerLease {
			continue
		}
		if err := o.remove(ctx, lease); err != nil {
			return err
		}
	}
	for _, name := range []string{issuer.AuthoritySecret, issuer.GatewaySecret, issuer.ControllerSecret, issuer.EgressSecret} {
		if err := o.remove(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	if !o.Keys {
		return nil
	}
	for _, key := range ownKeys {
		if err := o.remove(ctx, key.DeepCopyObject().(client.Object)); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes an object of the system namespace if it is there.
func (o *Options) remove(ctx context.Context, obj client.Object) error {
	obj.SetNamespace(o.Namespace)
	switch err := o.Client.Delete(ctx, obj); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("delete %T %s: %w", obj, obj.GetName(), err)
	}
	o.Progress(fmt.Sprintf("deleted %s %s", strings.TrimPrefix(fmt.Sprintf("%T", obj), "*v1."), obj.GetName()))
	return nil
}
