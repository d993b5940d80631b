package access

import (
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// ownSecrets are the Secrets that gateways keep for themselves in the system
// namespace, publicKeys the ConfigMap with what others may know of them.
var (
	ownSecrets = []string{"token-seed", "init-keys"}
	publicKeys = []string{"init-keys"}
	// egressKeys are the Secret that egress processes keep for themselves, and the
	// ConfigMap with what others may know of it.
	egressKeys = []string{"egress-keys"}
)

// leaderLease is the lease of the one controller that works.
const leaderLease = "sandlane-controller"

// gatewayPolicies limit what a gateway writes to what its code writes.
func gatewayPolicies(o Options) []policy {
	all := []policy{podPolicy(), poolPolicy(), sandboxPolicy(o), networkPolicyPolicy(), checkpointPolicy(), buildPolicy(), sandboxSecretPolicy(), leasePolicy(), secretPolicy(ownSecrets), configMapPolicy(publicKeys)}
	for i := range all {
		all[i].process = Gateway
	}
	return all
}

// maps are variables for an object's labels and annotations, now and before.
func maps() []admissionv1.Variable {
	var out []admissionv1.Variable
	for _, field := range []string{"labels", "annotations"} {
		out = append(out,
			admissionv1.Variable{Name: field, Expression: "object.metadata.?" + field + ".orValue({})"},
			admissionv1.Variable{Name: "old" + field, Expression: "oldObject.metadata.?" + field + ".orValue({})"})
	}
	return out
}

const (
	labelsNow, labelsBefore           = "variables.labels", "variables.oldlabels"
	annotationsNow, annotationsBefore = "variables.annotations", "variables.oldannotations"
)

// podPolicy: a gateway claims idle pods of pools, says of claimed ones that their
// sandbox has network rules, and stops pods.
func podPolicy() policy {
	phase := func(of string) string { return of + "[?" + quote(v1alpha1.LabelPhase) + "].orValue('')" }
	return policy{
		version: "v1", resource: "pods", scope: admissionv1.NamespacedScope,
		operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
		variables: append(maps(),
			admissionv1.Variable{Name: "was", Expression: phase(labelsBefore)},
			admissionv1.Variable{Name: "is", Expression: phase(labelsNow)},
			admissionv1.Variable{Name: "claims", Expression: "variables.was == " + quote(string(v1alpha1.PodIdle)) +
				" && variables.is in " + list(string(v1alpha1.PodStarting), string(v1alpha1.PodRunning))},
			admissionv1.Variable{Name: "marks", Expression: "variables.was == variables.is && variables.is in " +
				list(string(v1alpha1.PodStarting), string(v1alpha1.PodRunning))},
		),
		rules: []rule{
			{"request.operation == 'UPDATE'", "neither makes nor deletes pods"},
			// What was claimed before the label was taken off is stopped like any other.
			{inPools + " || !variables.claims", "claims pods" + onlyInPools},
			{quote(v1alpha1.LabelPool) + " in " + labelsBefore, "writes to pods of pools only"},
			{"variables.claims || variables.marks || variables.is == " + quote(string(v1alpha1.PodStopping)), "claims idle pods, marks claimed ones and stops pods, and nothing else"},
			{
				sameKeys(labelsNow, labelsBefore, "k == "+quote(v1alpha1.LabelPhase)+" || variables.claims && k in "+list(v1alpha1.LabelSandboxID, v1alpha1.LabelEnv)+
					" || variables.claims && k == "+quote(v1alpha1.LabelRules)+" && "+labelsNow+"[?k].orValue('') == "+quote(v1alpha1.RulesNames)+
					" || variables.marks && k == "+quote(v1alpha1.LabelRules)),
				"changes no labels of a pod but those of a claim, and that it has rules of its own",
			},
			{
				sameKeys(annotationsNow, annotationsBefore, "variables.claims && k in "+
					list(v1alpha1.AnnotationClaim, v1alpha1.AnnotationClaimedAt, v1alpha1.AnnotationStartedAt)),
				"changes no annotations of a pod but those of a claim",
			},
			{same("metadata.finalizers", "metadata.ownerReferences"), "changes neither finalizers nor owners of a pod"},
			// What the API server lets anyone change in a pod's spec.
			{
				"variables.claims && variables.is == " + quote(string(v1alpha1.PodStarting)) +
					" || object.spec.containers.all(c, oldObject.spec.containers.exists(b, b.name == c.name && b.image == c.image))",
				"changes images only as it claims a pod that is to start",
			},
			{
				same("spec.initContainers", "spec.activeDeadlineSeconds", "spec.tolerations", "spec.terminationGracePeriodSeconds", "spec.schedulingGates", "spec.nodeSelector", "spec.affinity"),
				"changes nothing of a pod's spec but images",
			},
		},
	}
}

// poolPolicy: a gateway notes on a pool that claims wait, and when the pool was last
// asked for a sandbox. If it could write more of a pool, it could make the controller
// make pods of any kind.
func poolPolicy() policy {
	return policy{
		group: groupSandlane, version: "*", resource: "sandboxpools", scope: admissionv1.NamespacedScope,
		operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
		variables:  maps(),
		rules: []rule{
			{"request.operation == 'UPDATE'", "neither makes nor deletes pools"},
			{inPools, "writes to pools" + onlyInPools},
			{"object.spec == oldObject.spec", "changes no pool's spec"},
			{labelsNow + " == " + labelsBefore, "changes no pool's labels"},
			{sameKeys(annotationsNow, annotationsBefore, "k in "+list(v1alpha1.AnnotationScaleUpPending, v1alpha1.AnnotationLastCreate)), "changes two annotations of a pool, " + v1alpha1.AnnotationScaleUpPending + " and " + v1alpha1.AnnotationLastCreate},
			{same("metadata.finalizers", "metadata.ownerReferences"), "changes neither finalizers nor owners of a pool"},
		},
	}
}

// sandboxPolicy: a gateway makes sandboxes, binds and ends them. Sandboxes have no
// namespace whose label a policy could see: names are refused that never have pools, and
// what is done to pods for a sandbox of another namespace is refused there. Of namespace and env the CRD says that they never change, of pool that it
// changes only with the binding of a sandbox with an env.
func sandboxPolicy(o Options) policy {
	return policy{
		group: groupSandlane, version: "*", resource: "sandboxes", scope: admissionv1.ClusterScope,
		operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
		rules: []rule{
			{"request.operation != 'DELETE'", "ends sandboxes, and deletes none"},
			{
				"request.operation == 'DELETE' || !(object.spec.namespace in " + list(o.closed()...) + ")",
				"writes to no sandboxes of namespaces that never have pools",
			},
			{
				"request.operation != 'CREATE' || object.metadata.?finalizers == optional.of(" + list(v1alpha1.FinalizerSandbox) + ") && !has(object.metadata.ownerReferences)",
				"makes sandboxes with Sandlane's finalizer and no owner",
			},
			{
				"request.operation != 'UPDATE' || " + same("metadata.labels", "metadata.annotations", "metadata.finalizers", "metadata.ownerReferences"),
				"changes nothing of a sandbox's metadata",
			},
			{
				"request.operation != 'UPDATE' || " + same("spec.team", "spec.images", "spec.metadata", "spec.network", "spec.firstRequest"),
				"changes neither owner, images, metadata nor reach of a sandbox",
			},
		},
	}
}

// networkPolicyPolicy: a gateway writes one policy for each sandbox that asks for
// rules, which selects that sandbox's pod and says nothing of incoming traffic.
// What was there before must be such a policy too.
func networkPolicyPolicy() policy {
	both := func(must string) string {
		return "[object, oldObject].all(p, p == null || " + must + ")"
	}
	label, id := quote(v1alpha1.LabelSandboxID), fmt.Sprintf("p.metadata.name.substring(%d)", len(v1alpha1.SandboxPolicyPrefix))
	return policy{
		group: groupNetwork, version: "v1", resource: "networkpolicies", scope: admissionv1.NamespacedScope,
		operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
		rules: []rule{
			{inPools, "writes policies" + onlyInPools},
			{both("p.metadata.name.startsWith(" + quote(v1alpha1.SandboxPolicyPrefix) + ")"), "writes policies of sandboxes only"},
			{
				both("p.spec.podSelector == {'matchLabels': {" + label + ": " + id + "}}"),
				"writes policies that select their own sandbox's pod only",
			},
			{both("p.spec.policyTypes == ['Egress'] && !has(p.spec.ingress)"), "writes policies for outgoing connections only"},
			{
				both("has(p.metadata.ownerReferences) && p.metadata.ownerReferences.size() == 1 && p.metadata.ownerReferences.all(r, r.kind == 'Sandbox' && r.name == " + id + ")"),
				"writes policies that their sandbox owns only",
			},
		},
	}
}

// checkpointPolicy: a finalizer of others would keep a namespace from ending, an owner
// would delete the Checkpoint.
func checkpointPolicy() policy {
	return policy{
		group: groupSandlane, version: "*", resource: "checkpoints", scope: admissionv1.NamespacedScope,
		operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
		rules: []rule{
			{"request.operation == 'CREATE'", "changes no Checkpoints"},
			{inPools, "makes Checkpoints" + onlyInPools},
			{
				"object.metadata.?finalizers == optional.of(" + list(v1alpha1.FinalizerCheckpoint) + ") && !has(object.metadata.ownerReferences)",
				"makes Checkpoints with Sandlane's finalizer and no owner",
			},
		},
	}
}

// buildPolicy: a gateway makes builds, and adds the recipe once. An owner or a finalizer of its
// choice would keep or delete what is not its own.
func buildPolicy() policy {
	return policy{
		group: groupSandlane, version: "*", resource: "templatebuilds", scope: admissionv1.NamespacedScope,
		operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
		rules: []rule{
			{inPools, "writes TemplateBuilds" + onlyInPools},
			{"!has(object.metadata.finalizers) && !has(object.metadata.ownerReferences)", "gives TemplateBuilds neither finalizers nor owners"},
			{"request.operation == 'CREATE' || !has(oldObject.spec.recipe) || object.spec == oldObject.spec", "changes no recipe of a TemplateBuild"},
		},
	}
}

// sandboxSecretPolicy: an owner or a finalizer of a gateway's choice would delete or keep a
// secret.
func sandboxSecretPolicy() policy {
	return policy{
		group: groupSandlane, version: "*", resource: "sandboxsecrets", scope: admissionv1.NamespacedScope,
		operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
		rules: []rule{
			{inPools, "writes SandboxSecrets" + onlyInPools},
			{"!has(object.metadata.finalizers) && !has(object.metadata.ownerReferences)", "gives SandboxSecrets neither finalizers nor owners"},
		},
	}
}

// leasePolicy keeps the lease of the one controller that works, which has no label, and
// those of egress processes, without which no fence would be asked of them, out of a
// gateway's hands. A gateway whose lease has lost its label may write to
// it, to take it up again.
func leasePolicy() policy {
	return policy{
		group: groupLeases, version: "v1", resource: "leases", scope: admissionv1.NamespacedScope,
		operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
		rules: []rule{
			{"request.name != " + quote(leaderLease) + " && (object == null || object.metadata.name != " + quote(leaderLease) + ")", "leaves the controller's lease alone"},
			{
				"[object, oldObject].all(l, l == null || !" + hasLabel("l", v1alpha1.LabelEgressLease) + " && !" + hasAnnotation("l", v1alpha1.AnnotationEgressAddress) + ")",
				"leaves the leases of egress processes alone",
			},
			{
				"object == null || " + hasLabel("object", v1alpha1.LabelGateway) + " || oldObject != null && !" + hasLabel("oldObject", v1alpha1.LabelGateway),
				"labels its lease",
			},
		},
	}
}

// egressPolicies limit what an egress process writes to its own lease and keys.
func egressPolicies() []policy {
	all := []policy{
		{
			group: groupLeases, version: "v1", resource: "leases", scope: admissionv1.NamespacedScope,
			operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
			rules: []rule{{
				"[object, oldObject].all(l, l == null || (" + hasLabel("l", v1alpha1.LabelEgressLease) + " || l == oldObject && " + hasAnnotation("l", v1alpha1.AnnotationEgressAddress) + ") && !" + hasLabel("l", v1alpha1.LabelGateway) + ")",
				"writes to leases of egress processes only, and labels its own",
			}},
		},
		secretPolicy(egressKeys), configMapPolicy(egressKeys),
	}
	for i := range all {
		all[i].process = Egress
	}
	return all
}

// secretPolicy: a Secret of another type could be one that Kubernetes fills with
// an account's token.
func secretPolicy(own []string) policy {
	return policy{
		version: "v1", resource: "secrets", scope: admissionv1.NamespacedScope,
		operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
		rules: []rule{
			{"request.operation == 'CREATE'", "neither changes nor deletes Secrets"},
			{"object == null || object.metadata.name in " + list(own...), "makes no Secrets but its own: " + strings.Join(own, ", ")},
			{"object == null || object.type == 'Opaque'", "makes Opaque Secrets only"},
		},
	}
}

// configMapPolicy: a process makes the ConfigMap with the public keys if there is none. What
// pods trust is changed by an administrator's command alone.
func configMapPolicy(own []string) policy {
	return policy{
		version: "v1", resource: "configmaps", scope: admissionv1.NamespacedScope,
		operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
		rules: []rule{
			{"request.operation == 'CREATE'", "neither changes nor deletes ConfigMaps"},
			{"object == null || object.metadata.name in " + list(own...), "makes no ConfigMaps but " + strings.Join(own, ", ")},
		},
	}
}

func hasLabel(of, label string) string { return hasKey(of, "labels", label) }

func hasAnnotation(of, annotation string) string { return hasKey(of, "annotations", annotation) }

// hasKey is a CEL expression: whether labels or annotations of an object have a key.
func hasKey(of, field, key string) string {
	return "(has(" + of + ".metadata." + field + ") && " + quote(key) + " in " + of + ".metadata." + field + ")"
}
