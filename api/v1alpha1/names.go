package v1alpha1

// Labels on pool pods.
const (
	// LabelPool names the SandboxPool (same namespace) that made the pod.
	LabelPool = "sandlane.dev/pool"
	// LabelPhase is the pod's PodPhase.
	LabelPhase = "sandlane.dev/phase"
	// LabelSandboxID is the sandbox that the pod backs. Absent while unclaimed.
	LabelSandboxID = "sandlane.dev/sandbox-id"
	// LabelEnv is the env that the claim came through; absent without one. On a pool
	// it is the env whose member the pool is.
	LabelEnv = "sandlane.dev/env"
	// LabelRules is RulesOwn on a pod whose sandbox has a NetworkPolicy of its own, and
	// RulesNames on one whose sandbox may connect by egress processes alone: the namespace's
	// base policy leaves both alone. Absent on others.
	LabelRules = "sandlane.dev/rules"
	// LabelEgress is the EgressMode of the pool that the pod was made for. Absent on others.
	LabelEgress = "sandlane.dev/egress"
)

// Labels on the pools of a TemplateBuild, and the second one on the build itself.
const (
	// LabelBuild is the build's name.
	LabelBuild = "sandlane.dev/build"
	// LabelTemplate is the ID of the template; absent on the pool of a builder.
	LabelTemplate = "sandlane.dev/template-id"
)

// The values of LabelRules. RulesNames comes with the claim of a sandbox that a first request
// makes, since its ID may be used again: a NetworkPolicy of its own would be the next one's too.
const (
	RulesOwn   = "own"
	RulesNames = "names"
)

// Annotations on pool pods. A pool pod carries AnnotationTemplateHash from its
// creation on, so that a JSON Patch "add" below /metadata/annotations always
// finds the map (design.md 3).
const (
	// AnnotationClaim is the ID of the claim that owns the pod. Absent while unclaimed.
	AnnotationClaim = "sandlane.dev/claim"
	// AnnotationAddress is the pod IP that was free of former owners when the
	// pod turned idle; the pod may be reached on no other address.
	AnnotationAddress = "sandlane.dev/address"
	// AnnotationClaimedAt and AnnotationStartedAt are RFC 3339 times with nanoseconds.
	AnnotationClaimedAt = "sandlane.dev/claimed-at"
	AnnotationStartedAt = "sandlane.dev/started-at"
	// AnnotationTemplateHash identifies the pod template the pod was made from.
	AnnotationTemplateHash = "sandlane.dev/template-hash"
	// AnnotationIdleSince is the RFC 3339 time with nanoseconds at which the pod
	// last turned idle.
	AnnotationIdleSince = "sandlane.dev/idle-since"
	// AnnotationScaleDownProtected is the RFC 3339 time, with nanoseconds, until
	// which a pod picked for scale-down is kept, so that a claim on its way wins.
	AnnotationScaleDownProtected = "sandlane.dev/scale-down-protected"
	// AnnotationContainers says what ran in the pod when it turned idle or running:
	// image, container ID and restart count of each container, as JSON.
	AnnotationContainers = "sandlane.dev/containers"
	// AnnotationPostStartHooks is the template's postStartHooks, as JSON: those of
	// the template that the pod was made from. Absent without any.
	AnnotationPostStartHooks = "sandlane.dev/post-start-hooks"
	// AnnotationImage is the template's image of the first container, on a pod that was
	// made with the template's idleImage: a claim gives it this image, unless its
	// sandbox names another. Absent on others.
	AnnotationImage = "sandlane.dev/image"
	// AnnotationRecycling is the RFC 3339 time with nanoseconds at which a stopped
	// pod was given its own images back, AnnotationRecycled that at which it turned
	// warming again.
	AnnotationRecycling = "sandlane.dev/recycling"
	AnnotationRecycled  = "sandlane.dev/recycled"
	// AnnotationOrdered is on a pod that was made for a claim that waited, beyond the
	// pool's replicas. The pod stays until it was idle for a minute, also if that claim is
	// gone.
	AnnotationOrdered = "sandlane.dev/ordered"
	// AnnotationStop is the StopRecord of the claim that is over, as JSON.
	AnnotationStop = "sandlane.dev/stop"
	// AnnotationFailureReason and AnnotationFailureMessage say why a pod is failed.
	AnnotationFailureReason  = "sandlane.dev/failure-reason"
	AnnotationFailureMessage = "sandlane.dev/failure-message"
)

// SandboxPolicyPrefix and a sandbox's ID are the name of the NetworkPolicy that
// holds its rules for outgoing connections.
const SandboxPolicyPrefix = "sandbox-"

// PodConditionReachable is a pod condition of nodes that open a pod's address
// only once it is idle: False until gateways can connect. A pod without it is
// reachable; one with it False is not claimed yet.
const PodConditionReachable = "sandlane.dev/Reachable"

// Annotations on SandboxPools.
const (
	// AnnotationScaleUpPending is the RFC 3339 time at which claims last began to
	// find no idle pod. It wakes the controller, which takes it away when no claim waits.
	AnnotationScaleUpPending = "sandlane.dev/scale-up-pending"
	// AnnotationUnused is on the pool of a template that the controller has scaled to none, as it is
	// not used. Absent on one that a user has scaled so: it stays.
	AnnotationUnused = "sandlane.dev/unused"
	// AnnotationLastCreate is the RFC 3339 time at which the pool was last asked
	// for a sandbox, a few seconds late.
	AnnotationLastCreate = "sandlane.dev/last-create"
	// AnnotationDraining is on the pool of a member that its env has no more: no claim
	// goes there, and it is deleted with its last pod. It says since when, in RFC 3339; no two
	// marks of a pool are the same.
	AnnotationDraining = "sandlane.dev/draining"
	// AnnotationCluster is the cluster ID whose entry in the env the pool is of.
	AnnotationCluster = "sandlane.dev/cluster-id"
	// AnnotationAdopted is the UID of the env that was made for a pool which had none.
	AnnotationAdopted = "sandlane.dev/adopted"
	// AnnotationAliases are further names by which users of the REST API may ask
	// for the pool, separated by commas.
	AnnotationAliases = "sandlane.dev/aliases"
)

// AnnotationOwner is on Sandboxes and Checkpoints that the REST API made: the ID of the
// API key that asked for it. It is never the key.
const AnnotationOwner = "sandlane.dev/owner"

// AnnotationSnapshot is on Sandboxes that began with the files of a snapshot: its ID.
const AnnotationSnapshot = "sandlane.dev/snapshot"

// AnnotationInternet is "true" on Sandboxes whose create asked for all outgoing connections by
// name. Answers of the REST API repeat it.
const AnnotationInternet = "sandlane.dev/internet"

// AnnotationAsked is on the NetworkPolicies of sandboxes: the rules as a client asked for them,
// in JSON. Answers of the REST API repeat it, and nothing else reads it.
const AnnotationAsked = "sandlane.dev/asked"

// Labels and annotations on gateway Leases.
const (
	// LabelGateway marks a Lease as a gateway's; its value is the gateway's name.
	LabelGateway = "sandlane.dev/gateway"
	// AnnotationGatewayAddress is where the gateway's control-plane gRPC service
	// listens: a gRPC target such as unix:///run/x.sock or dns:///10.0.0.1:9444.
	AnnotationGatewayAddress = "sandlane.dev/control-plane-address"
	// AnnotationGatewayPod is the UID of the pod that the gateway and its Envoy
	// run in; absent where they run in none.
	AnnotationGatewayPod = "sandlane.dev/gateway-pod"
)

// The same on the Leases of egress processes.
const (
	LabelEgressLease        = "sandlane.dev/egress-process"
	AnnotationEgressAddress = "sandlane.dev/egress-control-plane-address"
)

// A namespace with this label may have pools: Sandlane makes pods, pools and Checkpoints
// in no other. The platform's administrator sets it; docs/operations.md, "Rights".
const (
	LabelPools   = "sandlane.dev/pools"
	PoolsAllowed = "allowed"
)

// AnnotationIDPrefixes is on a namespace: the prefixes, separated by commas, that its pools may
// reserve in the whole cluster (firstRequest.idPrefix), also longer ones that begin with one of
// them. The platform's administrator sets it; docs/operations.md, "Rights".
const AnnotationIDPrefixes = "sandlane.dev/id-prefixes"

// Finalizers.
const (
	// FinalizerPod keeps a deleted pool pod that was claimed until its claim is fenced, or
	// its sandbox has ended and has the pod's address in its status.
	FinalizerPod = "sandlane.dev/pool-pod"
	// FinalizerSandbox keeps a deleted Sandbox until it has ended and its
	// address is fenced.
	FinalizerSandbox = "sandlane.dev/sandbox"
	// FinalizerCheckpoint keeps a deleted Checkpoint until its data is deleted.
	FinalizerCheckpoint = "sandlane.dev/checkpoint"
)

// Labels of Secrets that hold API keys.
const (
	// LabelAPIKey marks a Secret as an API key; its value is the key's ID.
	LabelAPIKey = "sandlane.dev/api-key"
	// LabelTeam names the team that an API key belongs to.
	LabelTeam = "sandlane.dev/team"
)

// PodPhase is the value of LabelPhase.
type PodPhase string

// The pod phases, in the order of the state diagram in docs/design.
const (
	PodWarming  PodPhase = "warming"
	PodIdle     PodPhase = "idle"
	PodStarting PodPhase = "starting"
	PodRunning  PodPhase = "running"
	PodStopping PodPhase = "stopping"
	PodFailed   PodPhase = "failed"
)

// IDPattern is what every sandbox ID matches, whether a request names it in its host, its
// headers or its path.
const IDPattern = `^[a-z0-9]([a-z0-9-]{0,55}[a-z0-9])?$`

// FieldNamespace is the field by which Sandboxes, which are cluster-scoped, can
// be listed by the namespace they belong to.
const FieldNamespace = "spec.namespace"

// SandboxdPort is where sandboxd, the agent inside a sandbox, listens (see
// RunsSandboxd).
const SandboxdPort = 49983

// LabelInitKey is the label of pool pods that run sandboxd: the ID of the key pair
// that gateways must sign with what they send to the /init of the pod. The pod keeps
// it for life.
const LabelInitKey = "sandlane.dev/init-key"

// generatedLen is the length of a generated ID: "i" and 20 of a-z and 0-9.
const generatedLen = 21

// GeneratedID reports whether an ID has the form that the REST API gives. Such a
// sandbox is made by the REST API alone.
func GeneratedID(id string) bool {
	if len(id) != generatedLen || id[0] != 'i' {
		return false
	}
	for i := range len(id) {
		if c := id[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}
