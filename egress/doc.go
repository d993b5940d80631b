// Package egress says in NetworkPolicies what sandboxes may connect to, and what
// may connect to them: the policies that a namespace with pools needs, and the
// rules of one sandbox. Gateways write the latter (gateway/restapi/backend); operators
// install the former, from `sandlane network-policies`.
//
// It enforces nothing: that is the work of a cluster's network plugin.
//
// # How the policies add up
//
// A pod may do what any of its policies allows, so exactly one policy may be about
// the outgoing connections of a pod:
//
//   - the base policy, for pool pods without the label v1alpha1.LabelRules: all
//     addresses but those that are closed, and the cluster's name server; beside it, for
//     those with egress ByName, one that adds egress processes;
//   - the policy for pods with v1alpha1.RulesNames, which their claim puts on: egress
//     processes alone;
//   - a sandbox's own policy, for the pod with its ID, which then carries the label:
//     what its rules allow but what is closed, and the name server unless all is
//     denied.
//
// A sandbox's own label is put on after its policy is written, and both stay until the pod is
// gone or recycled, which takes all labels of a claim off. Between the two writes
// both policies count, which is what the base policy allows alone: never more, since
// neither opens what is closed.
package egress
