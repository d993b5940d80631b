package kubetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/access"
	"github.com/sandlane/sandlane/api/v1alpha1"
)

// ControllerConfig is Config with the rights that the controller has on a cluster with one
// pool namespace, made by Namespace, and no others: a read or write that package access
// does not list fails the test of what needs it. It must not meet access's objects made by
// the test itself.
func ControllerConfig(t testing.TB, namespace string) *rest.Config {
	t.Helper()
	o := access.Options{}
	o.Complete()
	cfg := Config(t)
	cfg.Impersonate = rest.ImpersonationConfig{
		UserName: o.Username(access.Controller),
		Groups:   append(slices.Clone(o.Groups()), "system:authenticated"),
	}
	if err := installAccounts(t, o, cfg); err != nil {
		t.Fatal(err)
	}
	for _, obj := range access.Bindings(o, namespace) {
		if err := Client(t).Create(t.Context(), obj); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("creating %T %s: %v", obj, obj.GetName(), err)
		}
	}
	return cfg
}

var accounts struct {
	once sync.Once
	err  error
}

// installAccounts makes the accounts' objects once for all tests, and waits until the
// API server lets the controller read: it hears of new roles a moment later.
func installAccounts(t testing.TB, o access.Options, controller *rest.Config) error {
	t.Helper()
	accounts.once.Do(func() {
		c := Client(t)
		objects := []client.Object{
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.SystemNamespace}},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.KeyNamespace}},
		}
		for _, obj := range append(objects, access.Objects(o)...) {
			if accounts.err = c.Create(t.Context(), obj); accounts.err != nil {
				accounts.err = fmt.Errorf("creating %T %s: %w", obj, obj.GetName(), accounts.err)
				return
			}
		}
		as, err := client.New(controller, client.Options{Scheme: Scheme(), Mapper: c.RESTMapper()})
		if err != nil {
			accounts.err = err
			return
		}
		Eventually(t, "the controller's rights", func() error {
			return as.List(t.Context(), &v1alpha1.SandboxList{}, client.Limit(1))
		})
	})
	return accounts.err
}
