package access

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// policy is one ValidatingAdmissionPolicy that limits a process's writes of one
// resource.
type policy struct {
	process Process
	// resource is as in Right.
	group, version, resource string
	// scope is that of the resource.
	scope      admissionv1.ScopeType
	operations []admissionv1.OperationType
	// variables and rules are in CEL, in order.
	variables []admissionv1.Variable
	rules     []rule
}

// rule is a CEL expression that must hold, and the sentence for a write that it
// refuses.
type rule struct{ must, message string }

const admissionVersion = "admissionregistration.k8s.io/v1"

// policies are the admission policies and their bindings.
func policies(o Options) []client.Object {
	var out []client.Object
	for _, p := range slices.Concat(gatewayPolicies(o), controllerPolicies(), egressPolicies()) {
		name := AccountName(p.process) + "-" + strings.ReplaceAll(p.resource, "/", "-")
		spec := admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: p.operations,
					Rule: admissionv1.Rule{
						APIGroups: []string{p.group}, APIVersions: []string{p.version}, Resources: []string{p.resource}, Scope: &p.scope,
					},
				},
			}}},
			MatchConditions: []admissionv1.MatchCondition{{
				Name: string(p.process), Expression: fmt.Sprintf("request.userInfo.username == %s", quote(o.Username(p.process))),
			}},
			Variables: p.variables,
		}
		for _, r := range p.rules {
			spec.Validations = append(spec.Validations, admissionv1.Validation{
				Expression: r.must, Message: "a Sandlane " + string(p.process) + " " + r.message, Reason: new(metav1.StatusReasonForbidden),
			})
		}
		out = append(out,
			&admissionv1.ValidatingAdmissionPolicy{
				TypeMeta:   metav1.TypeMeta{APIVersion: admissionVersion, Kind: "ValidatingAdmissionPolicy"},
				ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec,
			},
			&admissionv1.ValidatingAdmissionPolicyBinding{
				TypeMeta:   metav1.TypeMeta{APIVersion: admissionVersion, Kind: "ValidatingAdmissionPolicyBinding"},
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
					PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
				},
			})
	}
	return out
}

// quote makes a CEL string of text that needs no escapes; anything else is a slip
// in this package or in Options.Validate.
func quote(text string) string {
	if strings.ContainsAny(text, "'\\\n") {
		panic("access: no CEL string: " + text)
	}
	return "'" + text + "'"
}

// list makes a CEL list of strings.
func list(texts ...string) string {
	quoted := make([]string, len(texts))
	for i, t := range texts {
		quoted[i] = quote(t)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// onlyInPools names pool namespaces in a sentence of a rule.
const onlyInPools = " in namespaces with the label " + v1alpha1.LabelPools + "=" + v1alpha1.PoolsAllowed + " only"

// inPools is a CEL expression: whether the object's namespace may have pools.
var inPools = "namespaceObject.metadata.?labels[" + quote(v1alpha1.LabelPools) + "].orValue('') == " + quote(v1alpha1.PoolsAllowed)

// same is a CEL expression: the fields, each a path below the object, are as they
// were before. A field that is absent must stay so.
func same(paths ...string) string {
	all := make([]string, len(paths))
	for i, p := range paths {
		at := strings.LastIndexByte(p, '.')
		p = p[:at] + ".?" + p[at+1:]
		all[i] = "object." + p + " == oldObject." + p
	}
	return strings.Join(all, " && ")
}

// sameKeys is a CEL expression: the maps now and before, both expressions, differ
// in nothing but what may change: an expression of the key k.
func sameKeys(now, before, mayChange string) string {
	return fmt.Sprintf("%[1]s.all(k, %[3]s || k in %[2]s && %[2]s[k] == %[1]s[k]) && %[2]s.all(k, %[3]s || k in %[1]s)", now, before, mayChange)
}
