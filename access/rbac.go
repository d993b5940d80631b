package access

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Objects returns what grants the processes their rights and no more: service
// accounts, RBAC and admission policies, in an order in which they can be made.
// The two namespaces are not among them, nor what Bindings returns. The options must be complete and valid.
func Objects(o Options) []client.Object {
	var out []client.Object
	for _, p := range Processes() {
		out = append(out, account(o, p))
		out = append(out, grants(o, p)...)
	}
	return append(out, policies(o)...)
}

func account(o Options, p Process) client.Object {
	return &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.SystemNamespace, Name: AccountName(p)},
		// Only the container that needs the token mounts it: Envoy, in the same pod,
		// must not have it.
		AutomountServiceAccountToken: new(false),
	}
}

// Bindings returns what lets the processes read in one namespace with pools what they
// read in those alone: logs, network policies and Events.
func Bindings(o Options, namespace string) []client.Object {
	var out []client.Object
	for _, p := range Processes() {
		if len(rules(p, Bound)) == 0 {
			continue
		}
		g := granter{o: o, process: p}
		g.bind(namespace, boundRole(p), "ClusterRole")
		out = append(out, g.objects...)
	}
	return out
}

// boundRole is the ClusterRole of the rights of the scope Bound.
func boundRole(p Process) string { return AccountName(p) + "-pools" }

// grants are a process's roles and what binds them.
func grants(o Options, p Process) []client.Object {
	g := granter{o: o, process: p}
	g.clusterRole(AccountName(p), Cluster, Pools)
	g.bindCluster(AccountName(p))
	if len(rules(p, Bound)) > 0 {
		g.clusterRole(boundRole(p), Bound)
	}
	g.role(o.SystemNamespace, AccountName(p), System)
	if len(rules(p, Keys)) > 0 {
		g.role(o.KeyNamespace, AccountName(p), Keys)
	}
	return g.objects
}

type granter struct {
	o       Options
	process Process
	objects []client.Object
}

const rbacVersion = "rbac.authorization.k8s.io/v1"

func (g *granter) clusterRole(name string, scopes ...Scope) {
	g.objects = append(g.objects, &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacVersion, Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules(g.process, scopes...),
	})
}

func (g *granter) role(namespace, name string, s Scope) {
	g.objects = append(g.objects, &rbacv1.Role{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacVersion, Kind: "Role"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: rules(g.process, s),
	})
	g.bind(namespace, name, "Role")
}

func (g *granter) bind(namespace, role, kind string) {
	g.objects = append(g.objects, &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacVersion, Kind: "RoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects:   g.subjects(),
	})
}

func (g *granter) bindCluster(role string) {
	g.objects = append(g.objects, &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacVersion, Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   g.subjects(),
	})
}

func (g *granter) subjects() []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: g.o.SystemNamespace, Name: AccountName(g.process)}}
}

// rules are the rights of some scopes as RBAC has them, one rule for each resource.
func rules(p Process, scopes ...Scope) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, r := range Rights(p) {
		if !slices.Contains(scopes, r.Scope) {
			continue
		}
		at := slices.IndexFunc(out, func(one rbacv1.PolicyRule) bool {
			return one.APIGroups[0] == r.Group && one.Resources[0] == r.Resource && slices.Equal(one.ResourceNames, r.Names)
		})
		if at < 0 {
			out = append(out, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, ResourceNames: r.Names})
			at = len(out) - 1
		}
		out[at].Verbs = append(out[at].Verbs, r.Verbs...)
	}
	return out
}
