package access_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/access"
	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// complete returns options with the defaults.
func complete() access.Options {
	o := access.Options{}
	o.Complete()
	return o
}

// install makes the namespaces and the objects of complete() once. The tests share
// the API server.
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
		})
		return o
	}
}()

// limited returns the options of a second installation whose gateway and egress processes
// RBAC lets do anything, so that the policies alone limit them, and waits until they do.
var limited = func() func(t *testing.T) access.Options {
	var once sync.Once
	return func(t *testing.T) access.Options {
		o := access.Options{SystemNamespace: "limited-system", KeyNamespace: "limited-keys"}
		once.Do(func() {
			c := kubetest.Client(t)
			for _, ns := range []string{o.SystemNamespace, o.KeyNamespace} {
				create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
			}
			for _, obj := range access.Objects(o) {
				switch p := obj.(type) {
				case *admissionv1.ValidatingAdmissionPolicy:
					p.Name += "-limited"
					create(t, c, p)
				case *admissionv1.ValidatingAdmissionPolicyBinding:
					p.Name, p.Spec.PolicyName = p.Name+"-limited", p.Spec.PolicyName+"-limited"
					create(t, c, p)
				}
			}
			create(t, c, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "limited"},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
				Subjects: []rbacv1.Subject{
					{Kind: rbacv1.ServiceAccountKind, Namespace: o.SystemNamespace, Name: access.AccountName(access.Gateway)},
					{Kind: rbacv1.ServiceAccountKind, Namespace: o.SystemNamespace, Name: access.AccountName(access.Egress)},
				},
			})
			// The API server compiles new policies within a moment or two.
			refused := func(p access.Process, all map[string]client.Object) {
				for name, obj := range all {
					kubetest.Eventually(t, fmt.Sprintf("the policy of %s for the %s", name, p), func() error {
						err := as(t, o, p).Create(t.Context(), obj, client.DryRunAll)
						if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
							return nil
						}
						obj.SetResourceVersion("")
						return errors.New("it does not refuse: " + fmt.Sprint(err))
					})
				}
			}
			both := map[string]client.Object{
				"secrets":     &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}},
				"leases":      &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}},
				"config maps": &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}},
			}
			refused(access.Egress, both)
			refused(access.Gateway, both)
			refused(access.Gateway, map[string]client.Object{
				"pods": poolPod("default", v1alpha1.PodIdle), "checkpoints": checkpoint("default"), "pools": pool("default"), "sandboxes": sandbox("kube-system"), "builds": build("default"),
				"network policies": &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}},
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
