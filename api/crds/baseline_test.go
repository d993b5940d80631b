package crds_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sandlane/sandlane/test/kubetest"
)

// control is a control of the baseline profile of Kubernetes' Pod Security Standards:
// what of a pod it restricts, with a value that it forbids.
type control struct {
	name, pod string
	want      string // what the refusal of a template says
}

// baseline has every field that the baseline profile restricts, as of Kubernetes 1.37, but
// for procMount: the API server takes it with a user namespace alone, where the profile
// allows it. TestTemplateRefusals has it.
func baseline() []control {
	all := []control{
		{"hostNetwork", `{spec: {hostNetwork: true, containers: [{name: a, image: a}]}}`, "hostNetwork is refused"},
		{"hostPID", `{spec: {hostPID: true, containers: [{name: a, image: a}]}}`, "hostPID is refused"},
		{"hostIPC", `{spec: {hostIPC: true, containers: [{name: a, image: a}]}}`, "hostIPC is refused"},
		{"hostPath", `{spec: {volumes: [{name: w, hostPath: {path: /}}], containers: [{name: a, image: a}]}}`, "hostPath is refused"},
		{"AppArmor by annotation", `{metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/a: unconfined}}, spec: {containers: [{name: a, image: a}]}}`, "annotations for AppArmor are refused"},
		{"an unsafe sysctl", `{spec: {securityContext: {sysctls: [{name: net.ipv4.tcp_syncookies, value: "1"}, {name: kernel.msgmax, value: "1"}]}, containers: [{name: a, image: a}]}}`, "sysctls besides those that Kubernetes calls safe are refused"},
	}
	// What a pod's security context and one of each kind of container may have. hostProcess
	// needs the host's network, and all containers of a pod: the API server takes no other.
	for name, c := range map[string]struct{ field, beside, want string }{
		"seccomp":      {`seccompProfile: {type: Unconfined}`, ``, "Unconfined is refused%s: "},
		"AppArmor":     {`appArmorProfile: {type: Unconfined}`, ``, "Unconfined is refused%s: "},
		"SELinux type": {`seLinuxOptions: {type: spc_t}`, ``, "SELinux users, roles and types besides those of containers are refused%s: "},
		"SELinux user": {`seLinuxOptions: {type: container_t, user: system_u}`, ``, "SELinux users, roles and types besides those of containers are refused%s: "},
		"SELinux role": {`seLinuxOptions: {role: sysadm_r}`, ``, "SELinux users, roles and types besides those of containers are refused%s: "},
		"hostProcess":  {`windowsOptions: {hostProcess: true, runAsUserName: a}`, `hostNetwork: true, os: {name: windows}, `, "hostProcess is refused%s: "},
		"privileged":   {`privileged: true`, ``, "privileged is refused%s: "},
		"a capability": {`capabilities: {add: [NET_RAW]}`, ``, "capabilities.add is refused%s: "},
	} {
		context := `securityContext: {` + c.field + `}`
		all = append(all,
			control{name + " of a container", `{spec: {` + c.beside + `containers: [{name: a, image: a, ` + context + `}]}}`, fmt.Sprintf(c.want, "")},
			control{name + " of an init container", `{spec: {` + c.beside + `initContainers: [{name: i, image: a, ` + context + `}], containers: [{name: a, image: a, ` + context + `}]}}`, fmt.Sprintf(c.want, ", also in initContainers")},
		)
		if name != "privileged" && name != "a capability" { // these are of containers alone
			all = append(all, control{name + " of the pod", `{spec: {` + c.beside + context + `, containers: [{name: a, image: a}]}}`, fmt.Sprintf(c.want, " for the pod")})
		}
	}
	all = append(all,
		control{"hostPort", `{spec: {containers: [{name: a, image: a, ports: [{containerPort: 2, hostPort: 80}]}]}}`, "hostPort is refused"},
		control{"hostPort of an init container", `{spec: {initContainers: [{name: i, image: a, ports: [{containerPort: 2, hostPort: 80}]}], containers: [{name: a, image: a}]}}`, "hostPort is refused, also in initContainers"},
	)
	for _, action := range []string{`httpGet: {port: 80, host: 169.254.169.254}`, `tcpSocket: {port: 80, host: 169.254.169.254}`} {
		for _, probe := range []string{"livenessProbe", "readinessProbe", "startupProbe"} {
			of := probe + `: {` + action + `}`
			all = append(all,
				control{"host of " + of, `{spec: {containers: [{name: b, image: a}, {name: a, image: a, ` + of + `}]}}`, "the host of a probe is refused: "},
				control{"host of an init container's " + of, `{spec: {initContainers: [{name: i, image: a, restartPolicy: Always, ` + of + `}], containers: [{name: a, image: a}]}}`, "the host of a probe is refused, also in initContainers: "},
			)
		}
		for _, hook := range []string{"postStart", "preStop"} {
			of := `lifecycle: {` + hook + `: {` + action + `}}`
			all = append(all,
				control{"host of " + of, `{spec: {containers: [{name: b, image: a}, {name: a, image: a, ` + of + `}]}}`, "the host of a lifecycle hook is refused: "},
				control{"host of an init container's " + of, `{spec: {initContainers: [{name: i, image: a, restartPolicy: Always, ` + of + `}], containers: [{name: a, image: a}]}}`, "the host of a lifecycle hook is refused, also in initContainers: "},
			)
		}
	}
	return all
}

// A template that a tenant embeds in a pool may have nothing that the baseline profile
// forbids. The API server's own PodSecurity judges the same pods.
func TestTemplatesMeetBaseline(t *testing.T) {
	ns := kubetest.Namespace(t)
	judge := judged(t)
	for _, c := range baseline() {
		t.Run(c.name, func(t *testing.T) {
			if err := judge(t, c.pod); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `violates PodSecurity "baseline`) {
				t.Errorf("the profile does not forbid this: %v", err)
			}
			_, err := create(t, "SandboxPool", ns, kubetest.Name("p"), "{template: {template: "+c.pod+"}}")
			if got := messages(t, err); !strings.Contains(got, c.want) {
				t.Errorf("the API server says %q, want %q", got, c.want)
			}
		})
	}
	for name, pod := range map[string]string{
		"SELinux types of containers": `{spec: {securityContext: {seLinuxOptions: {type: container_t, level: "s0:c1,c2"}}, initContainers: [{name: i, image: a, securityContext: {seLinuxOptions: {type: container_init_t}}}], containers: [{name: a, image: a, securityContext: {seLinuxOptions: {type: container_kvm_t}}}, {name: b, image: a, securityContext: {seLinuxOptions: {type: container_engine_t}}}]}}`,
		"safe sysctls":                `{spec: {securityContext: {sysctls: [{name: kernel.shm_rmid_forced, value: "1"}, {name: net.ipv4.ip_local_port_range, value: "1024 65535"}, {name: net.ipv4.ip_unprivileged_port_start, value: "0"}, {name: net.ipv4.tcp_syncookies, value: "1"}, {name: net.ipv4.ping_group_range, value: "0 0"}, {name: net.ipv4.ip_local_reserved_ports, value: "80"}, {name: net.ipv4.tcp_keepalive_time, value: "1"}, {name: net.ipv4.tcp_fin_timeout, value: "1"}, {name: net.ipv4.tcp_keepalive_intvl, value: "1"}, {name: net.ipv4.tcp_keepalive_probes, value: "1"}, {name: net.ipv4.tcp_rmem, value: "1 1 1"}, {name: net.ipv4.tcp_wmem, value: "1 1 1"}]}, containers: [{name: a, image: a}]}}`,
		"probes and hooks of the pod": `{spec: {containers: [{name: a, image: a, livenessProbe: {httpGet: {port: 80}}, readinessProbe: {tcpSocket: {port: 80, host: ""}}, startupProbe: {exec: {command: [a]}}, lifecycle: {postStart: {httpGet: {port: 80, host: ""}}, preStop: {sleep: {seconds: 1}}}}]}}`,
		"Windows without hostProcess": `{spec: {os: {name: windows}, securityContext: {windowsOptions: {hostProcess: false, runAsUserName: a}}, containers: [{name: a, image: a, securityContext: {windowsOptions: {runAsUserName: a}}}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if err := judge(t, pod); err != nil {
				t.Errorf("the profile forbids this: %v", err)
			}
			if _, err := create(t, "SandboxPool", ns, kubetest.Name("p"), "{template: {template: "+pod+"}}"); err != nil {
				t.Error(err)
			}
		})
	}
}

// judged returns what the API server answers to a pod in a namespace with the baseline
// profile.
func judged(t *testing.T) func(t *testing.T, pod string) error {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: kubetest.Name("baseline"), Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"},
	}}
	if err := kubetest.Client(t).Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	return func(t *testing.T, pod string) error {
		t.Helper()
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(pod), &obj.Object); err != nil {
			t.Fatalf("pod %q: %v", pod, err)
		}
		obj.SetAPIVersion("v1")
		obj.SetKind("Pod")
		obj.SetNamespace(ns.Name)
		obj.SetName("judged")
		return kubetest.Client(t).Create(t.Context(), obj, client.DryRunAll)
	}
}
