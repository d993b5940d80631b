package access

// Process is one of Sandlane's processes.
type Process string

// The processes that talk to the API server. Envoy does not, and gets no account.
const (
	Gateway    Process = "gateway"
	Controller Process = "controller"
	// Egress connects sandboxes of pools with egress ByName to hosts.
	Egress Process = "egress"
)

// Processes are all of them.
func Processes() []Process { return []Process{Gateway, Controller, Egress} }

// Scope is where a right holds.
type Scope string

// The scopes, from the widest.
const (
	// Cluster: everywhere, and on objects without a namespace.
	Cluster Scope = "cluster"
	// Pools: in namespaces with the label v1alpha1.LabelPools. RBAC knows no labels, so
	// these are writes, which admission policies refuse elsewhere, but for those to pods
	// of pools that are there already.
	Pools Scope = "pool namespaces"
	// Bound: in pool namespaces that bind them (Bindings), as no policy sees a read. What
	// ends and cleans up is not among them: a namespace that ends loses its bindings first.
	Bound Scope = "pool namespaces that bind it"
	// System: in the namespace of leases and of the gateways' own Secrets.
	System Scope = "system namespace"
	// Keys: in the namespace of the Secrets that hold API keys.
	Keys Scope = "key namespace"
)

// Right is what a process may do with one resource in one scope.
type Right struct {
	Scope Scope
	// Group and Resource as in RBAC; a subresource follows a slash.
	Group, Resource string
	Verbs           []string
	// Names are the only objects that the right is for; empty means all.
	Names []string
	// For says what it is needed for.
	For string
	// When says where the right is used; empty means in every cluster.
	When string
}

// Values of Right.When.
const (
	leaderElection = "with --leader-elect"
	// A watch that begins with a list is one request to newer API servers.
	separateLists = "where the API server cannot stream lists"
	// The count of an Event is for the very same version of an object.
	sameEvent    = "when one comes again before its object changes"
	suspectClaim = "when a pod has a claim that no sandbox seems to own"
	envs         = "where there are SandboxEnvs"
	checkpoints  = "with --checkpoint-dir"
	whereKept    = "where there are checkpoints"
	byName       = "where there are pools with egress ByName"
	templates    = "with --template-registry"
	keysMissing  = "at the first start, unless an administrator's command has made them"
)

const (
	groupSandlane = "sandlane.dev"
	groupEvents   = "events.k8s.io"
	groupLeases   = "coordination.k8s.io"
	groupNetwork  = "networking.k8s.io"
)

// Rights returns the list of a process's rights. The caller may change it.
func Rights(p Process) []Right {
	switch p {
	case Gateway:
		return gatewayRights()
	case Controller:
		return controllerRights()
	case Egress:
		return egressRights()
	}
	return nil
}

func gatewayRights() []Right {
	return []Right{
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxes", Verbs: []string{"get", "list", "watch", "create", "patch"}, For: "the index, live reads; binding and ending sandboxes"},
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxpools", Verbs: []string{"watch"}, For: "the index"},
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxenvs", Verbs: []string{"watch"}, For: "the index"},
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxtemplates", Verbs: []string{"watch"}, For: "the index"},
		{Scope: Cluster, Resource: "pods", Verbs: []string{"watch"}, For: "the index"},
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxpools", Verbs: []string{"list"}, For: "the index", When: separateLists},
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxenvs", Verbs: []string{"list"}, For: "the index", When: separateLists},
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxtemplates", Verbs: []string{"list"}, For: "the index", When: separateLists},
		{Scope: Cluster, Resource: "pods", Verbs: []string{"list"}, For: "the index", When: separateLists},
		{Scope: Cluster, Resource: "namespaces", Verbs: []string{"watch"}, For: "whether an API key's namespace is still there"},
		{Scope: Cluster, Resource: "namespaces", Verbs: []string{"list"}, For: "whether an API key's namespace is still there", When: separateLists},
		{Scope: Cluster, Resource: "nodes", Verbs: []string{"list"}, For: "the size of sandboxes without limits; cordoned nodes, whose pods are claimed last"},
		{Scope: Pools, Group: groupSandlane, Resource: "sandboxpools", Verbs: []string{"patch"}, For: "noting that claims wait for a pod, and when the last one was asked for"},
		{Scope: Cluster, Resource: "pods", Verbs: []string{"get"}, For: "live reads"},
		{Scope: Pools, Resource: "pods", Verbs: []string{"patch"}, For: "claiming, marking and stopping pods"},
		{Scope: Bound, Resource: "pods/log", Verbs: []string{"get"}, For: "the REST API's logs"},
		{Scope: Bound, Group: groupNetwork, Resource: "networkpolicies", Verbs: []string{"get", "list"}, For: "a sandbox's rules for outgoing connections"},
		{Scope: Pools, Group: groupNetwork, Resource: "networkpolicies", Verbs: []string{"create", "update"}, For: "a sandbox's rules for outgoing connections"},
		{Scope: Pools, Group: groupSandlane, Resource: "checkpoints", Verbs: []string{"create"}, For: "snapshots", When: checkpoints},
		{Scope: Cluster, Group: groupSandlane, Resource: "checkpoints", Verbs: []string{"get", "list", "delete"}, For: "snapshots", When: checkpoints},
		{Scope: Cluster, Group: groupSandlane, Resource: "checkpoints/status", Verbs: []string{"patch"}, For: "snapshots", When: checkpoints},
		{Scope: Pools, Group: groupSandlane, Resource: "templatebuilds", Verbs: []string{"create", "patch"}, For: "builds of templates", When: templates},
		{Scope: Cluster, Group: groupSandlane, Resource: "templatebuilds", Verbs: []string{"get", "list", "delete"}, For: "builds of templates", When: templates},
		{Scope: Cluster, Group: groupSandlane, Resource: "templatebuilds/status", Verbs: []string{"patch"}, For: "builds of templates", When: templates},
		{Scope: Pools, Group: groupSandlane, Resource: "sandboxsecrets", Verbs: []string{"create", "patch"}, For: "secrets", When: byName},
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxsecrets", Verbs: []string{"get", "list", "delete"}, For: "secrets", When: byName},
		{Scope: System, Group: groupLeases, Resource: "leases", Verbs: []string{"get", "create", "update", "patch", "delete"}, For: "this gateway's lease"},
		{Scope: System, Resource: "secrets", Verbs: []string{"get"}, Names: ownSecrets, For: "the seed of tokens, the keys of /init"},
		{Scope: System, Resource: "secrets", Verbs: []string{"create"}, For: "the seed of tokens, the keys of /init", When: keysMissing},
		{Scope: System, Resource: "configmaps", Verbs: []string{"get"}, Names: publicKeys, For: "whether there have been keys of /init"},
		{Scope: System, Resource: "configmaps", Verbs: []string{"create"}, For: "the public keys of /init", When: keysMissing},
		{Scope: System, Resource: "configmaps", Verbs: []string{"get"}, Names: egressKeys, For: "egress's public key", When: byName},
		{Scope: Keys, Resource: "secrets", Verbs: []string{"watch"}, For: "API keys"},
		{Scope: Keys, Resource: "secrets", Verbs: []string{"list"}, For: "API keys", When: separateLists},
	}
}

func egressRights() []Right {
	return []Right{
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxes", Verbs: []string{"watch"}, For: "what sandboxes may connect to", When: byName},
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxes", Verbs: []string{"list"}, For: "what sandboxes may connect to", When: separateLists},
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxsecrets", Verbs: []string{"watch"}, For: "secrets", When: byName},
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxsecrets", Verbs: []string{"list"}, For: "secrets", When: separateLists},
		{Scope: Cluster, Resource: "pods", Verbs: []string{"watch"}, For: "whose an address is", When: byName},
		{Scope: Cluster, Resource: "pods", Verbs: []string{"list"}, For: "whose an address is", When: separateLists},
		{Scope: System, Group: groupLeases, Resource: "leases", Verbs: []string{"get", "create", "update", "patch", "delete"}, For: "this process's lease", When: byName},
		{Scope: System, Resource: "secrets", Verbs: []string{"get"}, Names: egressKeys, For: "its keys", When: byName},
		{Scope: System, Resource: "secrets", Verbs: []string{"create"}, For: "its keys", When: keysMissing},
		{Scope: System, Resource: "configmaps", Verbs: []string{"get"}, Names: egressKeys, For: "whether there have been keys", When: byName},
		{Scope: System, Resource: "configmaps", Verbs: []string{"create"}, For: "the public keys", When: keysMissing},
	}
}

func controllerRights() []Right {
	return []Right{
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxes", Verbs: []string{"list", "watch", "patch", "delete"}, For: "the cache; carrying out ends, idle releases, deleting records"},
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxes", Verbs: []string{"get"}, For: "live reads of the sweep, and before what hibernates gives up its pod or its files", When: suspectClaim},
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxes/status", Verbs: []string{"patch"}, For: "what is known of a sandbox"},
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxpools", Verbs: []string{"watch"}, For: "the cache"},
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxtemplates", Verbs: []string{"watch"}, For: "the cache"},
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxpools", Verbs: []string{"list"}, For: "the cache", When: separateLists},
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxtemplates", Verbs: []string{"list"}, For: "the cache", When: separateLists},
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxenvs", Verbs: []string{"watch"}, For: "the cache"},
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxenvs", Verbs: []string{"list"}, For: "the cache", When: separateLists},
		{Scope: Cluster, Group: groupSandlane, Resource: "checkpoints", Verbs: []string{"watch"}, For: "the cache"},
		{Scope: Cluster, Group: groupSandlane, Resource: "checkpoints", Verbs: []string{"list"}, For: "which data is swept; the cache " + separateLists, When: checkpoints},
		{Scope: Cluster, Resource: "pods", Verbs: []string{"list", "watch"}, For: "the cache, addresses in use"},
		{Scope: Cluster, Group: groupEvents, Resource: "events", Verbs: []string{"create"}, For: "Events of pools and of sandboxes, which have no namespace"},
		{Scope: Cluster, Group: groupEvents, Resource: "events", Verbs: []string{"patch"}, For: "counting Events", When: sameEvent},
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxpools/status", Verbs: []string{"patch"}, For: "the pool's counts and conditions"},
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxpools", Verbs: []string{"patch"}, For: "taking away the note that claims wait; members of envs; pools of builds; labels and annotations of a template"},
		{Scope: Pools, Group: groupSandlane, Resource: "sandboxpools", Verbs: []string{"create"}, For: "members of envs, pools of builds", When: envs},
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxpools", Verbs: []string{"delete"}, For: "members of envs, pools of builds", When: envs},
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxenvs", Verbs: []string{"patch"}, For: "the replicas of members", When: envs},
		{Scope: Pools, Group: groupSandlane, Resource: "sandboxenvs", Verbs: []string{"create"}, For: "envs of pools that are there already", When: "with --adopt-pools"},
		{Scope: Cluster, Group: groupSandlane, Resource: "sandboxenvs/status", Verbs: []string{"patch"}, For: "what is known of an env", When: envs},
		{Scope: Cluster, Group: groupSandlane, Resource: "checkpoints", Verbs: []string{"patch", "delete"}, For: "ending checkpoints", When: whereKept},
		{Scope: Cluster, Group: groupSandlane, Resource: "checkpoints/status", Verbs: []string{"patch"}, For: "what became of a checkpoint", When: whereKept},
		{Scope: Cluster, Group: groupSandlane, Resource: "templatebuilds", Verbs: []string{"list", "watch", "delete"}, For: "pools of builds", When: templates},
		{Scope: Cluster, Group: groupSandlane, Resource: "templatebuilds/status", Verbs: []string{"patch"}, For: "what became of a build", When: templates},
		{Scope: Cluster, Resource: "namespaces", Verbs: []string{"watch"}, For: "which pools' idPrefix binds other namespaces"},
		{Scope: Cluster, Resource: "namespaces", Verbs: []string{"list"}, For: "which pools' idPrefix binds other namespaces", When: separateLists},
		{Scope: Cluster, Resource: "namespaces", Verbs: []string{"get"}, For: "whether a checkpoint that is deleted goes with its namespace", When: checkpoints},
		{Scope: Cluster, Resource: "pods", Verbs: []string{"get"}, For: "live reads"},
		{Scope: Pools, Resource: "pods", Verbs: []string{"create", "patch", "delete"}, For: "making, stopping, recycling and deleting pods"},
		{Scope: Pools, Resource: "pods/exec", Verbs: []string{"create"}, For: "postStartHooks"},
		{Scope: Bound, Resource: "events", Verbs: []string{"list"}, For: "why a pod never got Ready"},
		{Scope: System, Group: groupLeases, Resource: "leases", Verbs: []string{"list", "watch", "create", "patch", "delete"}, For: "gateways: which to ask, revoking, writing back what is missing, deleting what is over"},
		{Scope: System, Group: groupLeases, Resource: "leases", Verbs: []string{"get", "update"}, For: "leader election", When: leaderElection},
		{Scope: System, Resource: "configmaps", Verbs: []string{"get"}, Names: publicKeys, For: "the public key that new pods get"},
		{Scope: System, Resource: "events", Verbs: []string{"create", "patch"}, For: "leader election", When: leaderElection},
	}
}
