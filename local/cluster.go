package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/access"
	"github.com/sandlane/sandlane/api/crds"
	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient"
)

// connect returns a client that acts as the kubeconfig says. It needs no
// server yet.
func connect(kubeconfig string) (*rest.Config, client.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.QPS = -1
	config.Timeout = 10 * time.Second
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, nil, fmt.Errorf("prepare a client: %w", err)
	}
	// A mapper of the known kinds alone: nothing is asked before the first call.
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: kubeclient.RESTMapper(scheme)})
	if err != nil {
		return nil, nil, fmt.Errorf("prepare a client: %w", err)
	}
	return config, c, nil
}

// install makes Sandlane's definitions, its namespaces and what grants its
// processes their rights, and waits until objects of every kind can be made.
func install(ctx context.Context, api client.Client) error {
	definitions, err := crds.All()
	if err != nil {
		return fmt.Errorf("read the definitions: %w", err)
	}
	for _, crd := range definitions {
		if err := ignoreExists(api.Create(ctx, crd)); err != nil {
			return fmt.Errorf("install %s: %w", crd.Name, err)
		}
	}
	for _, crd := range definitions {
		if err := established(ctx, api, crd.Name); err != nil {
			return err
		}
	}
	for _, name := range []string{SystemNamespace, KeyNamespace} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := ignoreExists(api.Create(ctx, namespace)); err != nil {
			return fmt.Errorf("create the namespace %s: %w", name, err)
		}
	}
	// The controller manager makes it too, and may come later.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: poolNamespace, Name: "default"}}
	if err := ignoreExists(api.Create(ctx, account)); err != nil {
		return fmt.Errorf("create the service account of pods: %w", err)
	}
	for _, obj := range append(access.Objects(accounts()), access.Bindings(accounts(), poolNamespace)...) {
		if err := ignoreExists(api.Create(ctx, obj)); err != nil {
			return fmt.Errorf("grant the processes their rights: %w", err)
		}
	}
	return allowPools(ctx, api, poolNamespace)
}

// allowPools labels a namespace as one that may have pools.
func allowPools(ctx context.Context, api client.Client, name string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, v1alpha1.LabelPools, v1alpha1.PoolsAllowed)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		err := api.Patch(ctx, namespace, client.RawPatch(types.MergePatchType, patch))
		return err == nil, client.IgnoreNotFound(err) // the API server makes the namespace default by itself
	})
	if err != nil {
		return fmt.Errorf("label the namespace %s: %w", name, err)
	}
	return nil
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func established(ctx context.Context, api client.Client, name string) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := api.Get(ctx, client.ObjectKey{Name: name}, &crd); err != nil {
			return false, nil //nolint:nilerr // asked again until the time is over
		}
		for _, c := range crd.Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the API server to serve %s: %w", name, err)
	}
	return nil
}
