package access

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// controllerPolicies keep the controller to namespaces that may have pools: elsewhere it
// makes nothing and runs nothing. Pods of pools that are there already it stops, changes and
// deletes also where the label was taken off, so that nothing is left hanging: a pod gets
// its pool's label as it is made, and the controller can give it to no pod elsewhere.
func controllerPolicies() []policy {
	makes := func(resource, what string) policy {
		return policy{
			process: Controller, group: groupSandlane, version: "*", resource: resource, scope: admissionv1.NamespacedScope,
			operations: []admissionv1.OperationType{admissionv1.Create},
			rules:      []rule{{inPools, "makes " + what + onlyInPools}},
		}
	}
	return []policy{
		{
			process: Controller, version: "v1", resource: "pods", scope: admissionv1.NamespacedScope,
			operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
			variables:  maps(),
			rules: []rule{
				{"request.operation != 'CREATE' || " + inPools, "makes pods" + onlyInPools},
				{"request.operation == 'CREATE' || " + inPools + " || " + quote(v1alpha1.LabelPool) + " in " + labelsBefore, "writes elsewhere to pods of pools only"},
			},
		},
		{
			process: Controller, version: "v1", resource: "pods/exec", scope: admissionv1.NamespacedScope,
			operations: []admissionv1.OperationType{admissionv1.Connect},
			rules:      []rule{{inPools, "runs programs" + onlyInPools}},
		},
		makes("sandboxpools", "pools"),
		makes("sandboxenvs", "envs"),
	}
}
