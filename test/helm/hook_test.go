package helm

import "testing"

// hookedPool runs a command in each claimed pod before its sandbox runs.
const hookedPool = `{"apiVersion":"sandlane.dev/v1alpha1","kind":"SandboxPool","metadata":{"name":"hooked","namespace":"default"},"spec":{"replicas":1,
"template":{"postStartHooks":[{"name":"mark","exec":{"command":["/bin/bash","-c","echo $HOSTNAME >/tmp/hook"]}}],"template":{"spec":{"terminationGracePeriodSeconds":1,
"automountServiceAccountToken":false,"enableServiceLinks":false,"containers":[{"name":"main","image":"sandlane-test-base:test","imagePullPolicy":"IfNotPresent",
"ports":[{"name":"envd","containerPort":49983}],"readinessProbe":{"httpGet":{"path":"/health","port":49983},"periodSeconds":1}}]}}}}}`

// A hook runs by the kubelet's exec, before its sandbox counts as running.
func (c *cluster) postStartHook(t *testing.T, python string) {
	c.apply(t, hookedPool)
	pod, _ := c.idlePod(t, "hooked")
	if out := c.kubectl(t, "exec", pod, "--", "/bin/bash", "-c", "[ -e /tmp/hook ] || echo none"); out != "none" {
		t.Errorf("before a claim the hook's file is there: %q", out)
	}
	c.python(t, python, "hook.py")
	c.kubectl(t, "delete", "sandboxpool", "hooked", "--timeout=60s")
}
