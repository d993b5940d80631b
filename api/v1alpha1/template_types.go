package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SandboxTemplate is a pod template that pools share.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=sbt
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SandboxTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SandboxTemplateSpec `json:"spec"`
}

// NodeAccess is a way from a pod to its node.
// +kubebuilder:validation:Enum=HostPath;Privileged;Capabilities;ProcMount;Unconfined;Sysctls
type NodeAccess string

// The ways from a pod to its node that can be allowed.
const (
	// AllowHostPath allows volumes of the node's own files.
	AllowHostPath NodeAccess = "HostPath"
	// AllowPrivileged allows privileged containers.
	AllowPrivileged NodeAccess = "Privileged"
	// AllowCapabilities allows containers with capabilities beyond the runtime's own.
	AllowCapabilities NodeAccess = "Capabilities"
	// AllowProcMount allows containers whose /proc shows and takes all that the
	// runtime hides of it (procMount: Unmasked).
	AllowProcMount NodeAccess = "ProcMount"
	// AllowUnconfined allows containers without the runtime's profile of system calls
	// (seccomp) or of AppArmor, or with other SELinux types than those of containers.
	AllowUnconfined NodeAccess = "Unconfined"
	// AllowSysctls allows kernel settings besides those that Kubernetes calls safe.
	AllowSysctls NodeAccess = "Sysctls"
)

// SandboxTemplateSpec describes the pods of a pool.
// +kubebuilder:validation:XValidation:rule="(has(self.allow) && 'HostPath' in self.allow) || !has(self.template.spec) || !has(self.template.spec.volumes) || self.template.spec.volumes.all(v, !has(v.hostPath))",message="hostPath is refused: a sandbox would reach files of its node; a SandboxTemplate may allow HostPath"
// +kubebuilder:validation:XValidation:rule="(has(self.allow) && 'Privileged' in self.allow) || !has(self.template.spec) || self.template.spec.containers.all(c, !has(c.securityContext) || !has(c.securityContext.privileged) || !c.securityContext.privileged)",message="privileged is refused: a sandbox would own its node; a SandboxTemplate may allow Privileged"
// +kubebuilder:validation:XValidation:rule="(has(self.allow) && 'Capabilities' in self.allow) || !has(self.template.spec) || self.template.spec.containers.all(c, !has(c.securityContext) || !has(c.securityContext.capabilities) || !has(c.securityContext.capabilities.add) || size(c.securityContext.capabilities.add) == 0)",message="capabilities.add is refused: SYS_ADMIN and others open the node to a sandbox; a SandboxTemplate may allow Capabilities"
// +kubebuilder:validation:XValidation:rule="(has(self.allow) && 'Privileged' in self.allow) || !has(self.template.spec) || !has(self.template.spec.initContainers) || self.template.spec.initContainers.all(c, !has(c.securityContext) || !has(c.securityContext.privileged) || !c.securityContext.privileged)",message="privileged is refused, also in initContainers: a sandbox would own its node; a SandboxTemplate may allow Privileged"
// +kubebuilder:validation:XValidation:rule="(has(self.allow) && 'Capabilities' in self.allow) || !has(self.template.spec) || !has(self.template.spec.initContainers) || self.template.spec.initContainers.all(c, !has(c.securityContext) || !has(c.securityContext.capabilities) || !has(c.securityContext.capabilities.add) || size(c.securityContext.capabilities.add) == 0)",message="capabilities.add is refused, also in initContainers: SYS_ADMIN and others open the node to a sandbox; a SandboxTemplate may allow Capabilities"
// +kubebuilder:validation:XValidation:rule="(has(self.allow) && 'ProcMount' in self.allow) || !has(self.template.spec) || self.template.spec.containers.all(c, !has(c.securityContext) || !has(c.securityContext.procMount) || c.securityContext.procMount != 'Unmasked')",message="procMount Unmasked is refused: a sandbox could change its node by /proc; a SandboxTemplate may allow ProcMount"
// +kubebuilder:validation:XValidation:rule="(has(self.allow) && 'Unconfined' in self.allow) || !has(self.template.spec) || self.template.spec.containers.all(c, !has(c.securityContext) || ((!has(c.securityContext.seccompProfile) || c.securityContext.seccompProfile.type != 'Unconfined') && (!has(c.securityContext.appArmorProfile) || c.securityContext.appArmorProfile.type != 'Unconfined')))",message="Unconfined is refused: a sandbox without a profile of system calls or AppArmor reaches more of its node's kernel; a SandboxTemplate may allow Unconfined"
// +kubebuilder:validation:XValidation:rule="(has(self.allow) && 'ProcMount' in self.allow) || !has(self.template.spec) || !has(self.template.spec.initContainers) || self.template.spec.initContainers.all(c, !has(c.securityContext) || !has(c.securityContext.procMount) || c.securityContext.procMount != 'Unmasked')",message="procMount Unmasked is refused, also in initContainers: a sandbox could change its node by /proc; a SandboxTemplate may allow ProcMount"
// +kubebuilder:validation:XValidation:rule="(has(self.allow) && 'Unconfined' in self.allow) || !has(self.template.spec) || !has(self.template.spec.initContainers) || self.template.spec.initContainers.all(c, !has(c.securityContext) || ((!has(c.securityContext.seccompProfile) || c.securityContext.seccompProfile.type != 'Unconfined') && (!has(c.securityContext.appArmorProfile) || c.securityContext.appArmorProfile.type != 'Unconfined')))",message="Unconfined is refused, also in initContainers: a sandbox without a profile of system calls or AppArmor reaches more of its node's kernel; a SandboxTemplate may allow Unconfined"
// +kubebuilder:validation:XValidation:rule="(has(self.allow) && 'Unconfined' in self.allow) || !has(self.template.spec) || !has(self.template.spec.securityContext) || ((!has(self.template.spec.securityContext.seccompProfile) || self.template.spec.securityContext.seccompProfile.type != 'Unconfined') && (!has(self.template.spec.securityContext.appArmorProfile) || self.template.spec.securityContext.appArmorProfile.type != 'Unconfined'))",message="Unconfined is refused for the pod: sandboxes without a profile of system calls or AppArmor reach more of their node's kernel; a SandboxTemplate may allow Unconfined"
// +kubebuilder:validation:XValidation:rule="(has(self.allow) && 'Unconfined' in self.allow) || !has(self.template.metadata) || !has(self.template.metadata.annotations) || self.template.metadata.annotations.all(k, !k.startsWith('container.apparmor.security.beta.kubernetes.io/'))",message="annotations for AppArmor are refused: use appArmorProfile; a SandboxTemplate may allow Unconfined"
// +kubebuilder:validation:XValidation:rule=`(has(self.allow) && 'Unconfined' in self.allow) || !has(self.template.spec) || self.template.spec.containers.all(c, c.?securityContext.?seLinuxOptions.?type.orValue("") in ["", 'container_t', 'container_init_t', 'container_kvm_t', 'container_engine_t'] && c.?securityContext.?seLinuxOptions.?user.orValue("") == "" && c.?securityContext.?seLinuxOptions.?role.orValue("") == "")`,message="SELinux users, roles and types besides those of containers are refused: spc_t and others open the node to a sandbox; a SandboxTemplate may allow Unconfined"
// +kubebuilder:validation:XValidation:rule=`(has(self.allow) && 'Unconfined' in self.allow) || !has(self.template.spec) || !has(self.template.spec.initContainers) || self.template.spec.initContainers.all(c, c.?securityContext.?seLinuxOptions.?type.orValue("") in ["", 'container_t', 'container_init_t', 'container_kvm_t', 'container_engine_t'] && c.?securityContext.?seLinuxOptions.?user.orValue("") == "" && c.?securityContext.?seLinuxOptions.?role.orValue("") == "")`,message="SELinux users, roles and types besides those of containers are refused, also in initContainers: spc_t and others open the node to a sandbox; a SandboxTemplate may allow Unconfined"
// +kubebuilder:validation:XValidation:rule=`(has(self.allow) && 'Unconfined' in self.allow) || !has(self.template.spec) || (self.template.spec.?securityContext.?seLinuxOptions.?type.orValue("") in ["", 'container_t', 'container_init_t', 'container_kvm_t', 'container_engine_t'] && self.template.spec.?securityContext.?seLinuxOptions.?user.orValue("") == "" && self.template.spec.?securityContext.?seLinuxOptions.?role.orValue("") == "")`,message="SELinux users, roles and types besides those of containers are refused for the pod: spc_t and others open the node to a sandbox; a SandboxTemplate may allow Unconfined"
// +kubebuilder:validation:XValidation:rule="(has(self.allow) && 'Sysctls' in self.allow) || !has(self.template.spec) || !has(self.template.spec.securityContext) || !has(self.template.spec.securityContext.sysctls) || self.template.spec.securityContext.sysctls.all(s, s.name in ['kernel.shm_rmid_forced', 'net.ipv4.ip_local_port_range', 'net.ipv4.ip_unprivileged_port_start', 'net.ipv4.tcp_syncookies', 'net.ipv4.ping_group_range', 'net.ipv4.ip_local_reserved_ports', 'net.ipv4.tcp_keepalive_time', 'net.ipv4.tcp_fin_timeout', 'net.ipv4.tcp_keepalive_intvl', 'net.ipv4.tcp_keepalive_probes', 'net.ipv4.tcp_rmem', 'net.ipv4.tcp_wmem'])",message="sysctls besides those that Kubernetes calls safe are refused: a sandbox would change its node; a SandboxTemplate may allow Sysctls"
type SandboxTemplateSpec struct {
	// Template is the pod to run. hostNetwork, hostPID, hostIPC, hostPort,
	// shareProcessNamespace, hostProcess, and the host of probes and lifecycle hooks are
	// refused: each would let a sandbox reach its neighbours.
	// +kubebuilder:validation:XValidation:rule="has(self.spec) && size(self.spec.containers) > 0",message="a template needs at least one container"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.hostNetwork) || !self.spec.hostNetwork",message="hostNetwork is refused: a sandbox must not share its node's network"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.hostPID) || !self.spec.hostPID",message="hostPID is refused: a sandbox must not see its node's processes"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.hostIPC) || !self.spec.hostIPC",message="hostIPC is refused: a sandbox must not share its node's IPC namespace"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.shareProcessNamespace) || !self.spec.shareProcessNamespace",message="shareProcessNamespace is refused: every process that can answer on a pod's address must end with its container"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || self.spec.containers.all(c, !has(c.ports) || c.ports.all(p, !has(p.hostPort) || p.hostPort == 0))",message="hostPort is refused: a sandbox is reached through the gateway alone"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.initContainers) || self.spec.initContainers.all(c, !has(c.ports) || c.ports.all(p, !has(p.hostPort) || p.hostPort == 0))",message="hostPort is refused, also in initContainers: a sandbox is reached through the gateway alone"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !self.spec.?securityContext.?windowsOptions.?hostProcess.orValue(false)",message="hostProcess is refused for the pod: a sandbox would own its Windows node"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || self.spec.containers.all(c, !c.?securityContext.?windowsOptions.?hostProcess.orValue(false))",message="hostProcess is refused: a sandbox would own its Windows node"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.initContainers) || self.spec.initContainers.all(c, !c.?securityContext.?windowsOptions.?hostProcess.orValue(false))",message="hostProcess is refused, also in initContainers: a sandbox would own its Windows node"
	// +kubebuilder:validation:XValidation:rule=`!has(self.spec) || self.spec.containers.all(c, c.?livenessProbe.?httpGet.?host.orValue("") == "" && c.?livenessProbe.?tcpSocket.?host.orValue("") == "" && c.?readinessProbe.?httpGet.?host.orValue("") == "" && c.?readinessProbe.?tcpSocket.?host.orValue("") == "" && c.?startupProbe.?httpGet.?host.orValue("") == "" && c.?startupProbe.?tcpSocket.?host.orValue("") == "")`,message="the host of a probe is refused: a node would ask other addresses than the sandbox's"
	// +kubebuilder:validation:XValidation:rule=`!has(self.spec) || !has(self.spec.initContainers) || self.spec.initContainers.all(c, c.?livenessProbe.?httpGet.?host.orValue("") == "" && c.?livenessProbe.?tcpSocket.?host.orValue("") == "" && c.?readinessProbe.?httpGet.?host.orValue("") == "" && c.?readinessProbe.?tcpSocket.?host.orValue("") == "" && c.?startupProbe.?httpGet.?host.orValue("") == "" && c.?startupProbe.?tcpSocket.?host.orValue("") == "")`,message="the host of a probe is refused, also in initContainers: a node would ask other addresses than the sandbox's"
	// +kubebuilder:validation:XValidation:rule=`!has(self.spec) || self.spec.containers.all(c, c.?lifecycle.?postStart.?httpGet.?host.orValue("") == "" && c.?lifecycle.?postStart.?tcpSocket.?host.orValue("") == "" && c.?lifecycle.?preStop.?httpGet.?host.orValue("") == "" && c.?lifecycle.?preStop.?tcpSocket.?host.orValue("") == "")`,message="the host of a lifecycle hook is refused: a node would ask other addresses than the sandbox's"
	// +kubebuilder:validation:XValidation:rule=`!has(self.spec) || !has(self.spec.initContainers) || self.spec.initContainers.all(c, c.?lifecycle.?postStart.?httpGet.?host.orValue("") == "" && c.?lifecycle.?postStart.?tcpSocket.?host.orValue("") == "" && c.?lifecycle.?preStop.?httpGet.?host.orValue("") == "" && c.?lifecycle.?preStop.?tcpSocket.?host.orValue("") == "")`,message="the host of a lifecycle hook is refused, also in initContainers: a node would ask other addresses than the sandbox's"
	Template corev1.PodTemplateSpec `json:"template"`
	// Allow names what the pod template may have that is refused otherwise, because
	// it opens the node to the sandbox. Only a SandboxTemplate, which operators make
	// for the cluster, can say so: a template embedded in a pool cannot.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=6
	Allow []NodeAccess `json:"allow,omitempty"`
	// IdleImage is what the first container runs until it is claimed, in pools whose
	// podCreationImagePolicy is IdleImage. A claim changes it to the template's image,
	// or to the one that the sandbox names, and waits until that runs. Empty means the
	// template's image.
	// +optional
	IdleImage string `json:"idleImage,omitempty"`
	// Runtimes are what the controller adds to the first container. With sandboxd any image of
	// Linux is a sandbox: an init container brings sandboxd, which runs as the container's first
	// process and starts the command that the template names.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1
	Runtimes []Runtime `json:"runtimes,omitempty"`
	// PostStartHooks run in this order once a claimed pod runs its images, before
	// its sandbox counts as running. They may run more than once for a claim.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	PostStartHooks []PostStartHook `json:"postStartHooks,omitempty"`
	// StartupTimeout and IdleTimeout are the defaults of pools that set none.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="not a duration such as 90s, 5m or 1h30m"
	StartupTimeout *metav1.Duration `json:"startupTimeout,omitempty"`
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="not a duration such as 90s, 5m or 1h30m"
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`
	// Version is free text for people; it has no effect.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version,omitempty"`
}

// PostStartHook is something to be done in a pod before its sandbox is used.
//
// +kubebuilder:validation:XValidation:rule="has(self.exec) != has(self.httpPost)",message="set exactly one of exec and httpPost"
type PostStartHook struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Exec runs a command in a container.
	// +optional
	Exec *ExecHook `json:"exec,omitempty"`
	// HTTPPost sends a POST to the pod; any 2xx answer is a success.
	// +optional
	HTTPPost *HTTPPostHook `json:"httpPost,omitempty"`
	// TimeoutSeconds bounds each try. Unset means 10.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
	// Retries is how often a failed try is repeated, after 1, 2, 4 … 30 s. The
	// startup timeout bounds all of it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Retries int32 `json:"retries,omitempty"`
	// FailurePolicy says what a hook's failure means for the sandbox: Fail
	// (default) ends it, Ignore goes on.
	// +optional
	FailurePolicy HookFailurePolicy `json:"failurePolicy,omitempty"`
}

// ExecHook is a command in a container.
type ExecHook struct {
	// Container is the first one if empty.
	// +optional
	Container string `json:"container,omitempty"`
	// +kubebuilder:validation:MinItems=1
	Command []string `json:"command"`
}

// HTTPPostHook is a request to the pod's own address.
type HTTPPostHook struct {
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// +optional
	// +kubebuilder:validation:Pattern="^/"
	Path string `json:"path,omitempty"`
	// Body is sent as it is, as application/json.
	// +optional
	Body string `json:"body,omitempty"`
}

// HookFailurePolicy says what a failed hook means.
// +kubebuilder:validation:Enum=Fail;Ignore
type HookFailurePolicy string

// The hook failure policies.
const (
	HookFail   HookFailurePolicy = "Fail"
	HookIgnore HookFailurePolicy = "Ignore"
)

// Runtime is something that the controller adds to pods.
// +kubebuilder:validation:Enum=sandboxd
type Runtime string

// RuntimeSandboxd is sandboxd.
const RuntimeSandboxd Runtime = "sandboxd"

// RunsSandboxd reports whether the pods of a template run sandboxd: it asks for that, or one of
// its containers names sandboxd's port.
func (t *SandboxTemplateSpec) RunsSandboxd() bool {
	return slices.Contains(t.Runtimes, RuntimeSandboxd) || RunsSandboxd(&t.Template.Spec)
}

// SandboxTemplateList is a list of SandboxTemplates.
//
// +kubebuilder:object:root=true
type SandboxTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SandboxTemplate `json:"items"`
}
