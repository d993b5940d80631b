package access_test

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/access"
	"github.com/sandlane/sandlane/test/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// complete returns options with the defaults.
func complete(pools ...string) access.Options {
	o := access.Options{PoolNamespaces: pools}
	o.Complete()
	return o
}

// install makes the namespaces and the objects of complete() once, and waits until
// the policies count. The tests share the API server, so the objects of all but
// the two tests with pool namespaces are the same.
var install = func() func(t *testing.T) access.Options {
	var once sync.Once
	return func(t *testing.T) access.Options {
		o := complete()
		once.Do(func() {
			c := kubetest.Client(t)
			for _, ns := range []string{o.SystemNamespace, o.KeyNamespace} {
				create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
			}
			for _, obj := range access.Objects(o) {
				create(t, c, obj)
			}
			// The API server compiles a new policy within a moment or two.
			gateway := as(t, o, access.Gateway)
			kubetest.Eventually(t, time.Minute, "the policies to deny", func() error {
				err := gateway.Create(t.Context(), &corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Namespace: o.SystemNamespace, Name: kubetest.Name("probe")},
				})
				if err == nil {
					return fmt.Errorf("a Secret could be made")
				}
				return nil
			})
		})
		return o
	}
}()

func create(t *testing.T, c client.Client, obj client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), obj); err != nil {
		t.Fatalf("create %T %s: %v", obj, obj.GetName(), err)
	}
}

func asConfig(t *testing.T, o access.Options, p access.Process) *rest.Config {
	t.Helper()
	cfg := kubetest.Config(t)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: o.Username(p), Groups: append(slices.Clone(o.Groups()), "system:authenticated")}
	return cfg
}

// as is a client that has a process's rights and no others.
func as(t *testing.T, o access.Options, p access.Process) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(asConfig(t, o, p), client.Options{Scheme: kubetest.Scheme(), Mapper: kubetest.Client(t).RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
