package crds_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sandlane/sandlane/test/kubetest"
)

const (
	container      = `{containers: [{name: main, image: a, resources: {limits: {cpu: 500m, memory: 1Gi}, requests: {cpu: 1}}}]}`
	containerPorts = `{containers: [{name: main, image: a, ports: [{containerPort: 8000}]}]}`
)

// templates are pod templates that the API server must refuse, with what it
// must say.
var templates = []struct{ name, template, want string }{
	{"hostNetwork", `{spec: {hostNetwork: true, containers: [{name: main}]}}`, "hostNetwork is refused"},
	{"hostPID", `{spec: {hostPID: true, containers: [{name: main}]}}`, "hostPID is refused"},
	{"hostIPC", `{spec: {hostIPC: true, containers: [{name: main}]}}`, "hostIPC is refused"},
	{"shareProcessNamespace", `{spec: {shareProcessNamespace: true, containers: [{name: main}]}}`, "shareProcessNamespace is refused"},
	{"hostPort", `{spec: {containers: [{name: a}, {name: b, ports: [{containerPort: 1}, {containerPort: 2, hostPort: 80}]}]}}`, "hostPort is refused"},
	{"hostPort in an init container", `{spec: {initContainers: [{name: i, ports: [{containerPort: 2, hostPort: 80}]}], containers: [{name: a}]}}`, "hostPort is refused, also in initContainers"},
	{"hostPath", `{spec: {volumes: [{name: v, emptyDir: {}}, {name: w, hostPath: {path: /}}], containers: [{name: a}]}}`, "hostPath is refused"},
	{"privileged", `{spec: {containers: [{name: a}, {name: b, securityContext: {privileged: true}}]}}`, "privileged is refused"},
	{"privileged init container", `{spec: {initContainers: [{name: i, securityContext: {privileged: true}}], containers: [{name: a}]}}`, "privileged is refused, also in initContainers"},
	{"capability", `{spec: {containers: [{name: a, securityContext: {capabilities: {add: [SYS_ADMIN]}}}]}}`, "capabilities.add is refused"},
	{"capability of an init container", `{spec: {initContainers: [{name: i, securityContext: {capabilities: {add: [ALL]}}}], containers: [{name: a}]}}`, "capabilities.add is refused, also in initContainers"},
	{"procMount", `{spec: {hostUsers: false, containers: [{name: a}, {name: b, securityContext: {procMount: Unmasked}}]}}`, "procMount Unmasked is refused"},
	{"procMount of an init container", `{spec: {initContainers: [{name: i, securityContext: {procMount: Unmasked}}], containers: [{name: a}]}}`, "procMount Unmasked is refused, also in initContainers"},
	{"seccomp", `{spec: {containers: [{name: a}, {name: b, securityContext: {seccompProfile: {type: Unconfined}}}]}}`, "Unconfined is refused: "},
	{"seccomp of an init container", `{spec: {initContainers: [{name: i, securityContext: {seccompProfile: {type: Unconfined}}}], containers: [{name: a}]}}`, "Unconfined is refused, also in initContainers"},
	{"seccomp of the pod", `{spec: {securityContext: {seccompProfile: {type: Unconfined}}, containers: [{name: a}]}}`, "Unconfined is refused for the pod"},
	{"AppArmor", `{spec: {containers: [{name: a, securityContext: {appArmorProfile: {type: Unconfined}}}]}}`, "Unconfined is refused: "},
	{"AppArmor of an init container", `{spec: {initContainers: [{name: i, securityContext: {appArmorProfile: {type: Unconfined}}}], containers: [{name: a}]}}`, "Unconfined is refused, also in initContainers"},
	{"AppArmor of the pod", `{spec: {securityContext: {appArmorProfile: {type: Unconfined}}, containers: [{name: a}]}}`, "Unconfined is refused for the pod"},
	{"AppArmor by annotation", `{metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/a: unconfined}}, spec: {containers: [{name: a}]}}`, "annotations for AppArmor are refused"},
	{"empty", `{}`, "a template needs at least one container"},
	{"no containers", `{spec: {containers: []}}`, "a template needs at least one container"},
	{"containers missing", `{spec: {}}`, "spec.containers: Required value"},
}

func TestTemplateRefusals(t *testing.T) {
	ns := kubetest.Namespace(t)
	for _, tc := range templates {
		t.Run(tc.name, func(t *testing.T) {
			_, err := create(t, "SandboxTemplate", "", kubetest.Name("t"), "{template: "+tc.template+"}")
			if got := messages(t, err); !strings.Contains(got, tc.want) {
				t.Errorf("SandboxTemplate: the API server says %q, want %q", got, tc.want)
			}
			_, err = create(t, "SandboxPool", ns, kubetest.Name("p"), "{template: {template: "+tc.template+"}}")
			if got := messages(t, err); !strings.Contains(got, tc.want) {
				t.Errorf("SandboxPool: the API server says %q, want %q", got, tc.want)
			}
		})
	}
}

func TestTemplateAccepted(t *testing.T) {
	accepted := map[string]string{
		"plain":               `{spec: ` + container + `}`,
		"port":                `{spec: ` + containerPorts + `}`,
		"refused fields off":  `{spec: {hostNetwork: false, hostPID: false, hostIPC: false, shareProcessNamespace: false, containers: [{name: a, ports: [{containerPort: 1, hostPort: 0}]}]}}`,
		"less than usual":     `{spec: {containers: [{name: a, securityContext: {privileged: false, capabilities: {drop: [ALL], add: []}, procMount: Default, seccompProfile: {type: RuntimeDefault}, appArmorProfile: {type: RuntimeDefault}}}]}}`,
		"integer quantities":  `{spec: {containers: [{name: a, resources: {limits: {cpu: 2, memory: 100000000}}}]}}`,
		"probe by port name":  `{spec: {containers: [{name: a, readinessProbe: {httpGet: {port: http}}}]}}`,
		"labels and metadata": `{metadata: {labels: {a: b}, annotations: {c: d}}, spec: ` + container + `}`,
	}
	for name, template := range accepted {
		t.Run(name, func(t *testing.T) {
			if _, err := create(t, "SandboxTemplate", "", kubetest.Name("t"), "{template: "+template+"}"); err != nil {
				t.Error(err)
			}
		})
	}
}

// The labels and annotations of a pod template are kept; a schema that only
// says "object" would have them pruned.
func TestTemplateMetadataKept(t *testing.T) {
	obj, err := create(t, "SandboxTemplate", "", kubetest.Name("t"),
		`{template: {metadata: {labels: {a: b}, annotations: {c: d}}, spec: `+container+`}}`)
	if err != nil {
		t.Fatal(err)
	}
	if got, _, _ := unstructured.NestedString(obj.Object, "spec", "template", "metadata", "labels", "a"); got != "b" {
		t.Errorf("label a = %q, want b", got)
	}
	if got, _, _ := unstructured.NestedString(obj.Object, "spec", "template", "metadata", "annotations", "c"); got != "d" {
		t.Errorf("annotation c = %q, want d", got)
	}
	if got, _, _ := unstructured.NestedSlice(obj.Object, "spec", "template", "spec", "containers"); len(got) != 1 {
		t.Errorf("%d containers, want 1", len(got))
	}
}

// A SandboxTemplate allows by name what is refused otherwise, each for itself; a
// template in a pool, which tenants may make, cannot.
func TestTemplateAllows(t *testing.T) {
	ns := kubetest.Namespace(t)
	parts := map[string]string{
		"HostPath":     `{volumes: [{name: w, hostPath: {path: /}}], containers: [{name: a}]}`,
		"Privileged":   `{initContainers: [{name: i, securityContext: {privileged: true}}], containers: [{name: a, securityContext: {privileged: true}}]}`,
		"Capabilities": `{containers: [{name: a, securityContext: {capabilities: {add: [SYS_ADMIN]}}}]}`,
		"ProcMount":    `{initContainers: [{name: i, securityContext: {procMount: Unmasked}}], containers: [{name: a, securityContext: {procMount: Unmasked}}]}`,
		"Unconfined":   `{securityContext: {seccompProfile: {type: Unconfined}}, initContainers: [{name: i, securityContext: {appArmorProfile: {type: Unconfined}}}], containers: [{name: a, securityContext: {seccompProfile: {type: Unconfined}, seLinuxOptions: {type: spc_t}}}]}`,
		"Sysctls":      `{securityContext: {sysctls: [{name: kernel.msgmax, value: "1"}]}, containers: [{name: a}]}`,
	}
	for needed, spec := range parts {
		for allowed := range parts {
			_, err := create(t, "SandboxTemplate", "", kubetest.Name("t"), "{allow: ["+allowed+"], template: {spec: "+spec+"}}")
			if (err == nil) != (needed == allowed) {
				t.Errorf("%s with %s allowed: %v", needed, allowed, err)
			}
		}
		_, err := create(t, "SandboxPool", ns, kubetest.Name("p"), "{template: {allow: ["+needed+"], template: {spec: "+spec+"}}}")
		if got := messages(t, err); !strings.Contains(got, "allow is for a SandboxTemplate alone") {
			t.Errorf("a pool that allows itself %s: the API server says %q", needed, got)
		}
	}
	_, err := create(t, "SandboxTemplate", "", kubetest.Name("t"), "{allow: [Everything], template: {spec: "+container+"}}")
	if got := messages(t, err); !strings.Contains(got, "Unsupported value") {
		t.Errorf("an unknown name: the API server says %q", got)
	}
}
