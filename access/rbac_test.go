package access_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sandlane/sandlane/access"
	"github.com/sandlane/sandlane/test/kubetest"
)

// verbs are all that the API server knows of for resources.
var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// resource is a line of the API server's discovery.
type resource struct {
	group, name string
	namespaced  bool
}

// resources are all that the API server has, with their subresources.
func resources(t *testing.T) []resource {
	t.Helper()
	clients, err := kubernetes.NewForConfig(kubetest.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := clients.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	found := map[resource]bool{}
	for _, l := range lists {
		group, _, hasGroup := strings.Cut(l.GroupVersion, "/")
		if !hasGroup {
			group = ""
		}
		for _, r := range l.APIResources {
			switch {
			case group == "authorization.k8s.io", group == "authentication.k8s.io": // every account may ask about itself
			case r.Name == "clustertrustbundles": // every account may read them since Kubernetes 1.37
			default:
				found[resource{group, r.Name, r.Namespaced}] = true
			}
		}
	}
	return slices.Collect(maps.Keys(found))
}

// granted is what the list says that RBAC grants. Where pools may be is for the admission
// policies to say (TestPoolNamespacesGoByTheirLabel).
func granted(p access.Process, r resource, verb string, in access.Scope, name string) bool {
	return slices.ContainsFunc(access.Rights(p), func(right access.Right) bool {
		return right.Group == r.group && right.Resource == r.name && slices.Contains(right.Verbs, verb) &&
			(len(right.Names) == 0 || slices.Contains(right.Names, name)) &&
			(right.Scope == access.Cluster || right.Scope == in || right.Scope == access.Pools)
	})
}

// Each account may do on the API server what the list says and nothing else: every
// verb on every resource there is, in each kind of namespace.
func TestAccountsHaveTheListedRightsAlone(t *testing.T) {
	o := install(t)
	all := resources(t)
	if len(all) < 50 {
		t.Fatalf("discovery has %d resources only", len(all))
	}
	bound := kubetest.Namespace(t)
	for _, obj := range access.Bindings(o, bound) {
		create(t, kubetest.Client(t), obj)
	}
	places := map[access.Scope]string{access.Cluster: "", access.Pools: kubetest.Namespace(t), access.Bound: bound, access.System: o.SystemNamespace, access.Keys: o.KeyNamespace}
	for _, p := range access.Processes() {
		clients, err := kubernetes.NewForConfig(asConfig(t, o, p))
		if err != nil {
			t.Fatal(err)
		}
		allowed := func(r resource, verb, namespace, name string) bool {
			main, sub, _ := strings.Cut(r.name, "/")
			review, err := clients.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
					Group: r.group, Resource: main, Subresource: sub, Verb: verb, Namespace: namespace, Name: name,
				}},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return review.Status.Allowed
		}
		asked, yes := 0, 0
		for _, r := range all {
			for scope, namespace := range places {
				if !r.namespaced && scope != access.Cluster {
					continue
				}
				for _, verb := range verbs {
					for _, name := range []string{"", "token-seed", "init-keys"} {
						if name != "" && r.name != "secrets" && r.name != "configmaps" {
							continue
						}
						want := granted(p, r, verb, scope, name)
						if got := allowed(r, verb, namespace, name); got != want {
							t.Errorf("%s: %s %s/%s %q in %q: allowed %v, the list says %v", p, verb, r.group, r.name, name, namespace, got, want)
						}
						asked++
						if want {
							yes++
						}
					}
				}
			}
		}
		t.Logf("%s: %d of %d allowed", p, yes, asked)
	}
}
