package access_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/access"
	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// merge sends a merge patch for a new object that an administrator makes.
func merge(t *testing.T, c client.Client, obj client.Object, patch string) error {
	t.Helper()
	create(t, kubetest.Client(t), obj)
	return c.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// A gateway that could write a pool's template would have the controller make pods
// with the node's files in them.
func TestGatewayWritesPools(t *testing.T) {
	o := limited(t)
	gateway, ns := as(t, o, access.Gateway), kubetest.Namespace(t)
	for patch, ok := range map[string]bool{
		`{"metadata":{"annotations":{"sandlane.dev/scale-up-pending":"2026-01-01T00:00:00Z"}}}`: true,
		`{"metadata":{"annotations":{"sandlane.dev/last-create":"2026-01-01T00:00:00Z"}}}`:      true,
		`{"metadata":{"annotations":{"sandlane.dev/aliases":"base"}}}`:                          false,
		`{"metadata":{"labels":{"a":"b"}}}`:                                                     false,
		`{"metadata":{"finalizers":["a.b/c"]}}`:                                                 false,
		`{"spec":{"replicas":1000}}`:                                                            false,
		`{"spec":{"firstRequest":{"access":"Public"}}}`:                                         false,
		`{"spec":{"templateRef":{"name":"other"}}}`:                                             false,
	} {
		t.Run(patch, func(t *testing.T) {
			check(t, merge(t, gateway, pool(ns), patch), ok)
		})
	}
	t.Run("make and delete", func(t *testing.T) {
		p := pool(ns)
		check(t, gateway.Create(t.Context(), p.DeepCopy()), false)
		create(t, kubetest.Client(t), p)
		check(t, gateway.Delete(t.Context(), p), false)
	})
	t.Run("in a namespace without pools", func(t *testing.T) {
		check(t, merge(t, gateway, pool("kube-system"), `{"metadata":{"annotations":{"sandlane.dev/scale-up-pending":"x"}}}`), false)
	})
}

func pool(namespace string) *v1alpha1.SandboxPool {
	return &v1alpha1.SandboxPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: kubetest.Name("pool")},
		Spec:       v1alpha1.SandboxPoolSpec{TemplateRef: &v1alpha1.TemplateRef{Name: "t"}},
	}
}

func sandbox(namespace string) *v1alpha1.Sandbox {
	return &v1alpha1.Sandbox{
		ObjectMeta: metav1.ObjectMeta{Name: kubetest.Name("s"), Finalizers: []string{v1alpha1.FinalizerSandbox}},
		Spec:       v1alpha1.SandboxSpec{Namespace: namespace, Pool: "pool", Team: "a"},
	}
}

func TestGatewayWritesSandboxes(t *testing.T) {
	o := limited(t)
	gateway, ns := as(t, o, access.Gateway), kubetest.Namespace(t)
	for name, test := range map[string]struct {
		change func(*v1alpha1.Sandbox)
		ok     bool
	}{
		"as ours":               {func(*v1alpha1.Sandbox) {}, true},
		"in kube-system":        {func(s *v1alpha1.Sandbox) { s.Spec.Namespace = "kube-system" }, false},
		"in our own namespace":  {func(s *v1alpha1.Sandbox) { s.Spec.Namespace = o.SystemNamespace }, false},
		"in the keys'":          {func(s *v1alpha1.Sandbox) { s.Spec.Namespace = o.KeyNamespace }, false},
		"without a finalizer":   {func(s *v1alpha1.Sandbox) { s.Finalizers = nil }, false},
		"with one that is kept": {func(s *v1alpha1.Sandbox) { s.Finalizers = append(s.Finalizers, "a.b/c") }, false},
	} {
		t.Run("create "+name, func(t *testing.T) {
			s := sandbox(ns)
			test.change(s)
			check(t, gateway.Create(t.Context(), s), test.ok)
		})
	}
	for patch, ok := range map[string]bool{
		`{"spec":{"binding":{"claimID":"c","podName":"p","podUID":"u"}}}`:    true,
		`{"spec":{"end":{"reason":"Released","at":"2026-01-01T00:00:00Z"}}}`: true,
		`{"spec":{"timeouts":{"endAt":"2026-01-01T00:00:00Z"}}}`:             true,
		`{"spec":{"team":"b"}}`:                   false,
		`{"spec":{"images":{"main":"evil"}}}`:     false,
		`{"spec":{"network":{"unsecured":true}}}`: false,
		`{"metadata":{"finalizers":null}}`:        false,
		`{"metadata":{"labels":{"a":"b"}}}`:       false,
	} {
		t.Run(patch, func(t *testing.T) { check(t, merge(t, gateway, sandbox(ns), patch), ok) })
	}
	t.Run("one of kube-system", func(t *testing.T) {
		check(t, merge(t, gateway, sandbox("kube-system"), `{"spec":{"binding":{"claimID":"c","podName":"p","podUID":"u"}}}`), false)
	})
	t.Run("delete", func(t *testing.T) {
		s := sandbox(ns)
		create(t, kubetest.Client(t), s)
		check(t, gateway.Delete(t.Context(), s), false)
	})
}

func build(namespace string) *v1alpha1.TemplateBuild {
	return &v1alpha1.TemplateBuild{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: uuid.NewString()},
		Spec:       v1alpha1.TemplateBuildSpec{TemplateID: strings.Repeat("a", 20), Name: "x", Tags: []string{"default"}, CPUCount: 1, MemoryMB: 512},
	}
}

// A gateway writes secrets where there may be pools, and has nothing else delete or keep them.
func TestGatewayWritesSandboxSecrets(t *testing.T) {
	o := limited(t)
	gateway, ns := as(t, o, access.Gateway), kubetest.Namespace(t)
	secret := func(namespace string) *v1alpha1.SandboxSecret {
		return &v1alpha1.SandboxSecret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.SecretObject("key")},
			Spec:       v1alpha1.SandboxSecretSpec{Name: "key", Version: 1, Sealed: []byte("sealed"), UpdatedAt: metav1.NowMicro()},
		}
	}
	kept := secret(ns)
	kept.Finalizers = []string{"a.b/c"}
	check(t, gateway.Create(t.Context(), kept), false)
	check(t, gateway.Create(t.Context(), secret("kube-system")), false)
	own := secret(ns)
	check(t, gateway.Create(t.Context(), own), true)
	own.Spec.Version = 2
	check(t, gateway.Update(t.Context(), own), true)
	own.Finalizers = []string{"a.b/c"}
	check(t, gateway.Update(t.Context(), own), false)
	check(t, gateway.Delete(t.Context(), own), true)
}

// A gateway makes builds and adds a recipe once. The controller makes pools of what it writes, so
// it may not change what a build is, nor keep one or have it deleted with something else.
func TestGatewayWritesTemplateBuilds(t *testing.T) {
	o := limited(t)
	admin, gateway, ns := kubetest.Client(t), as(t, o, access.Gateway), kubetest.Namespace(t)
	for name, test := range map[string]struct {
		change func(*v1alpha1.TemplateBuild)
		ok     bool
	}{
		"as ours":            {func(*v1alpha1.TemplateBuild) {}, true},
		"in kube-system":     {func(b *v1alpha1.TemplateBuild) { b.Namespace = "kube-system" }, false},
		"that does not go":   {func(b *v1alpha1.TemplateBuild) { b.Finalizers = []string{"a.b/c"} }, false},
		"of no random name":  {func(b *v1alpha1.TemplateBuild) { b.Name = "x" }, false},
		"of a name with dot": {func(b *v1alpha1.TemplateBuild) { b.Spec.Name = "a.b" }, false},
		"that another object deletes": {func(b *v1alpha1.TemplateBuild) {
			b.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "u"}}
		}, false},
	} {
		t.Run("create "+name, func(t *testing.T) {
			b := build(ns)
			test.change(b)
			if err := gateway.Create(t.Context(), b); (err == nil) != test.ok {
				t.Errorf("%v, want allowed %v", err, test.ok)
			}
		})
	}
	const recipe = `{"spec":{"recipe":{"from":"debian"}}}`
	for patch, ok := range map[string]bool{
		recipe:                                  true,
		`{"spec":{"name":"other"}}`:             false,
		`{"spec":{"tags":["v2"]}}`:              false,
		`{"spec":{"memoryMB":262144}}`:          false,
		`{"metadata":{"finalizers":["a.b/c"]}}`: false,
	} {
		t.Run(patch, func(t *testing.T) {
			if err := merge(t, gateway, build(ns), patch); (err == nil) != ok {
				t.Errorf("%v, want allowed %v", err, ok)
			}
		})
	}
	b := build(ns)
	create(t, admin, b)
	send := func(patch string) error {
		return gateway.Patch(t.Context(), b, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	if err := send(recipe); err != nil {
		t.Fatal(err)
	}
	check(t, send(`{"spec":{"recipe":{"from":"another"}}}`), false)
	if err := send(`{"spec":{"recipe":null}}`); err == nil {
		t.Error("a recipe was taken away")
	}
}

// sandboxPolicy is a policy as gateways write it.
func sandboxPolicy(namespace string) *networkingv1.NetworkPolicy {
	id := kubetest.Name("i")
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: v1alpha1.SandboxPolicyPrefix + id, Labels: map[string]string{v1alpha1.LabelSandboxID: id},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Sandbox", Name: id, UID: "u"}},
		},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelSandboxID: id}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
		},
	}
}

// Whatever a gateway may not make it may neither change nor delete nor turn one of
// its own into.
func TestGatewayWritesNetworkPolicies(t *testing.T) {
	o := limited(t)
	admin, gateway, ns := kubetest.Client(t), as(t, o, access.Gateway), kubetest.Namespace(t)
	for name, test := range map[string]struct {
		change func(*networkingv1.NetworkPolicy)
		ok     bool
	}{
		"a sandbox's":  {func(*networkingv1.NetworkPolicy) {}, true},
		"another name": {func(p *networkingv1.NetworkPolicy) { p.Name = kubetest.Name("operator") }, false},
		"another sandbox's pod": {func(p *networkingv1.NetworkPolicy) {
			p.Spec.PodSelector.MatchLabels[v1alpha1.LabelSandboxID] = "other"
		}, false},
		"all pods": {func(p *networkingv1.NetworkPolicy) { p.Spec.PodSelector = metav1.LabelSelector{} }, false},
		"by expression": {func(p *networkingv1.NetworkPolicy) {
			p.Spec.PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: v1alpha1.LabelPool, Operator: metav1.LabelSelectorOpExists}}}
		}, false},
		"ingress": {func(p *networkingv1.NetworkPolicy) {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
		}, false},
		"ingress from everywhere": {func(p *networkingv1.NetworkPolicy) {
			p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
			p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
		}, false},
		"nobody's":        {func(p *networkingv1.NetworkPolicy) { p.OwnerReferences = nil }, false},
		"another owner's": {func(p *networkingv1.NetworkPolicy) { p.OwnerReferences[0].Name = "other" }, false},
		"in kube-system":  {func(p *networkingv1.NetworkPolicy) { p.Namespace = "kube-system" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := sandboxPolicy(ns)
			test.change(p)
			made := p.DeepCopy()
			check(t, gateway.Create(t.Context(), made), test.ok)
			if test.ok {
				check(t, gateway.Update(t.Context(), made), true)
				check(t, gateway.Delete(t.Context(), made), true)
				return
			}
			was := p.DeepCopy()
			create(t, admin, was)
			now := was.DeepCopy()
			now.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{}}
			check(t, gateway.Update(t.Context(), now), false)
			check(t, gateway.Delete(t.Context(), was), false)

			own := sandboxPolicy(ns)
			create(t, admin, own)
			turned := own.DeepCopy()
			test.change(turned)
			if turned.Name == own.Name && turned.Namespace == own.Namespace {
				check(t, gateway.Update(t.Context(), turned), false)
			}
		})
	}
}

func TestGatewayWritesLeases(t *testing.T) {
	o := limited(t)
	gateway := as(t, o, access.Gateway)
	lease := func(name string, labels map[string]string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: o.SystemNamespace, Name: name, Labels: labels}}
	}
	ours := map[string]string{v1alpha1.LabelGateway: "g"}
	t.Run("its own", func(t *testing.T) {
		l := lease(kubetest.Name("g"), ours)
		check(t, gateway.Create(t.Context(), l), true)
		check(t, gateway.Update(t.Context(), l), true)
		check(t, gateway.Delete(t.Context(), l), true)
	})
	t.Run("that lost its label", func(t *testing.T) {
		check(t, merge(t, gateway, lease(kubetest.Name("g"), nil), `{"metadata":{"labels":{"sandlane.dev/gateway":"g"}}}`), true)
	})
	t.Run("without a label", func(t *testing.T) {
		check(t, gateway.Create(t.Context(), lease(kubetest.Name("g"), nil)), false)
		check(t, merge(t, gateway, lease(kubetest.Name("g"), ours), `{"metadata":{"labels":{"sandlane.dev/gateway":null}}}`), false)
	})
	t.Run("an egress process's", func(t *testing.T) {
		both := map[string]string{v1alpha1.LabelGateway: "g", v1alpha1.LabelEgressLease: "e"}
		check(t, gateway.Create(t.Context(), lease(kubetest.Name("g"), both)), false)
		check(t, merge(t, gateway, lease(kubetest.Name("g"), ours), `{"metadata":{"annotations":{"sandlane.dev/egress-control-plane-address":"x"}}}`), false)
		l := lease(kubetest.Name("e"), map[string]string{v1alpha1.LabelEgressLease: "e"})
		l.Annotations = map[string]string{v1alpha1.AnnotationEgressAddress: "x"}
		for _, patch := range []string{
			`{"metadata":{"labels":{"sandlane.dev/gateway":"g","sandlane.dev/egress-process":null},"annotations":null}}`,
			`{"spec":{"holderIdentity":"g"}}`,
		} {
			check(t, merge(t, gateway, l.DeepCopy(), patch), false)
			l.Name = kubetest.Name("e")
		}
		create(t, kubetest.Client(t), l)
		check(t, gateway.Delete(t.Context(), l), false)
	})
	t.Run("the controller's", func(t *testing.T) {
		check(t, gateway.Create(t.Context(), lease("sandlane-controller", ours)), false)
		l := lease("sandlane-controller", nil)
		check(t, merge(t, gateway, l, `{"metadata":{"labels":{"sandlane.dev/gateway":"g"}}}`), false)
		check(t, gateway.Delete(t.Context(), l), false)
	})
}

// A Secret of the type service-account-token is filled by Kubernetes with a token of
// the account that it names.
func TestGatewayWritesSecrets(t *testing.T) {
	o := limited(t)
	gateway := as(t, o, access.Gateway)
	secret := func(namespace, name string, kind corev1.SecretType) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: access.AccountName(access.Controller)},
		}, Type: kind}
	}
	check(t, gateway.Create(t.Context(), secret(o.SystemNamespace, "token-seed", corev1.SecretTypeServiceAccountToken)), false)
	check(t, gateway.Create(t.Context(), secret(o.SystemNamespace, kubetest.Name("x"), corev1.SecretTypeOpaque)), false)
	check(t, gateway.Create(t.Context(), secret(o.KeyNamespace, kubetest.Name("api-key"), corev1.SecretTypeOpaque)), false)
	check(t, gateway.Create(t.Context(), secret(o.SystemNamespace, "init-keys", corev1.SecretTypeOpaque)), true)
	own := secret(o.SystemNamespace, "token-seed", corev1.SecretTypeOpaque)
	check(t, gateway.Create(t.Context(), own), true)
	check(t, gateway.Update(t.Context(), own), false)
	check(t, gateway.Delete(t.Context(), own), false)
}

// A gateway publishes the first public keys of /init and no others: what a pod trusts
// later is not its to say.
func TestGatewayWritesConfigMaps(t *testing.T) {
	o := limited(t)
	gateway := as(t, o, access.Gateway)
	public := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: o.SystemNamespace, Name: name}}
	}
	check(t, gateway.Create(t.Context(), public(kubetest.Name("x"))), false)
	check(t, gateway.Create(t.Context(), public("init-keys")), true)
	check(t, gateway.Update(t.Context(), public("init-keys")), false)
	check(t, gateway.Delete(t.Context(), public("init-keys")), false)
}

// An egress process writes to leases of its kind alone, and to no other Secret and ConfigMap
// than that of its keys.
func TestEgressWrites(t *testing.T) {
	o := limited(t)
	egress := as(t, o, access.Egress)
	lease := func(name string, labels map[string]string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: o.SystemNamespace, Name: name, Labels: labels}}
	}
	own, gateways := map[string]string{v1alpha1.LabelEgressLease: "e"}, map[string]string{v1alpha1.LabelGateway: "g"}
	l := lease(kubetest.Name("e"), own)
	check(t, egress.Create(t.Context(), l), true)
	check(t, egress.Update(t.Context(), l), true)
	check(t, egress.Delete(t.Context(), l), true)
	check(t, egress.Create(t.Context(), lease(kubetest.Name("e"), nil)), false)
	check(t, egress.Create(t.Context(), lease(kubetest.Name("e"), gateways)), false)
	check(t, merge(t, egress, lease(kubetest.Name("g"), gateways), `{"metadata":{"labels":{"sandlane.dev/egress-process":"e"}}}`), false)
	check(t, merge(t, egress, lease(kubetest.Name("sandlane-controller"), nil), `{"metadata":{"labels":{"sandlane.dev/egress-process":"e"}}}`), false)
	for name, ok := range map[string]bool{"egress-keys": true, "init-keys": false, kubetest.Name("x"): false} {
		meta := metav1.ObjectMeta{Namespace: o.SystemNamespace, Name: name}
		check(t, egress.Create(t.Context(), &corev1.Secret{ObjectMeta: meta, Type: corev1.SecretTypeOpaque}), ok)
		check(t, egress.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta}), ok)
	}
}
