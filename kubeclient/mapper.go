package kubeclient

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// RESTMapper knows the kinds of a scheme without asking a server. Of kinds that
// are not namespaced it knows those that we use.
func RESTMapper(scheme *runtime.Scheme) meta.RESTMapper {
	clusterScoped := map[string]bool{
		"Namespace": true, "Node": true, "CustomResourceDefinition": true,
		"Sandbox": true, "SandboxTemplate": true,
		"ClusterRole": true, "ClusterRoleBinding": true,
		"ValidatingAdmissionPolicy": true, "ValidatingAdmissionPolicyBinding": true,
		"SelfSubjectAccessReview": true,
	}
	m := meta.NewDefaultRESTMapper(scheme.PrioritizedVersionsAllGroups())
	for gvk := range scheme.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		if clusterScoped[gvk.Kind] {
			scope = meta.RESTScopeRoot
		}
		if gvk.GroupVersion() == v1alpha1.GroupVersion && gvk.Kind == "Sandbox" {
			m.AddSpecific(gvk, gvk.GroupVersion().WithResource("sandboxes"), gvk.GroupVersion().WithResource("sandbox"), scope)
			continue
		}
		m.Add(gvk, scope)
	}
	return m
}
