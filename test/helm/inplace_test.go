package helm

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// recycledPool uses its pods again. Its containers share no writable volume, and
// /dev/shm is not writable.
const recycledPool = `{"apiVersion":"sandlane.dev/v1alpha1","kind":"SandboxPool","metadata":{"name":"recycled","namespace":"default"},"spec":{"replicas":1,"maxPods":1,
"recyclePolicy":"InPlace","firstRequest":{"access":"Public"},"podCreationImagePolicy":"IdleImage","template":{"idleImage":%q,"template":{"spec":{"terminationGracePeriodSeconds":1,
"automountServiceAccountToken":false,"containers":[{"name":"main","image":%q,"imagePullPolicy":"IfNotPresent",
"readinessProbe":{"httpGet":{"path":"/","port":8000},"periodSeconds":1},"volumeMounts":[{"name":"shm","mountPath":"/dev/shm","readOnly":true}]}],
"volumes":[{"name":"shm","emptyDir":{}}]}}}}}`

// withImage is a sandbox of that pool, which names its image.
const withImage = `{"apiVersion":"sandlane.dev/v1alpha1","kind":"Sandbox","metadata":{"name":%q},"spec":{"namespace":"default","pool":"recycled","images":{"main":%q}}}`

// kubeletPause is a kubelet's default delay before it starts an image again that it has
// started in the pod before.
const kubeletPause = 10 * time.Second

// container is what a pod's first container runs, as its kubelet says.
type container struct{ image, digest, id string }

func (c *cluster) container(t *testing.T, pod string) container {
	t.Helper()
	f := strings.Fields(c.kubectl(t, "get", "pod", pod, "-o",
		"jsonpath={.spec.containers[0].image} {.status.containerStatuses[0].imageID} {.status.containerStatuses[0].containerID}"))
	if len(f) != 3 {
		t.Fatalf("the container of pod %s is %q", pod, f)
	}
	return container{f[0], f[1][strings.LastIndex(f[1], "@")+1:], f[2]}
}

// A claim changes a pod's image in place, from the idle image to the template's, or to the
// image that the sandbox names; after the end the pod gets the idle image back and can be
// claimed again. Each time it is a new container, of the digest that the registry has. So no
// process answers for two sandboxes.
func (c *cluster) recycleInPlace(t *testing.T) {
	c.startRegistry(t, "sandlane-test-idle", "sandlane-test-echo")
	idle, used := c.digest(t, "sandlane-test-idle"), c.digest(t, "sandlane-test-echo")
	image := registryAddress + "/sandlane-test-echo@" + used
	c.apply(t, fmt.Sprintf(recycledPool, registryAddress+"/sandlane-test-idle@"+idle, image))
	pod, uid := c.idlePod(t, "recycled")
	seen := map[string]bool{}
	for i, id := range []string{"recycled-1", "recycled-2", "recycled-3"} {
		before := c.container(t, pod)
		if i == 0 {
			c.apply(t, fmt.Sprintf(withImage, id, image))
		}
		began := time.Now()
		process := c.process(t, id, "-H", "X-Sandbox-Pool: default/recycled")
		claim := time.Since(began)
		if _, of := c.podOf(t, id); of != uid {
			t.Errorf("%s has the pod %s, want the same %s", id, of, uid)
		}
		claimed := c.container(t, pod)
		if before.digest != idle || claimed.digest != used {
			t.Errorf("the images are %s and, claimed, %s, want %s and %s", before.digest, claimed.digest, idle, used)
		}
		for _, one := range []string{before.id, process, claimed.id} {
			if seen[one] {
				t.Errorf("for %s %s is there again", id, one)
			}
			seen[one] = true
		}
		began = time.Now()
		c.run(t, c.sandlane, "end", "--kubeconfig", c.Kubeconfig(), id)
		c.eventually(t, func(out string) bool { return out == "Ended" }, "kubectl", "get", "sandbox", id, "-o", "jsonpath={.status.phase}")
		if again, now := c.idlePod(t, "recycled"); again != pod || now != uid {
			t.Errorf("stock is the pod %s (%s), want %s (%s) again", again, now, pod, uid)
		}
		back := time.Since(began)
		fmt.Printf("      a claim that changes the image took %.1f s, the way back %.1f s\n", claim.Seconds(), back.Seconds())
		if claim >= kubeletPause || back >= kubeletPause {
			t.Errorf("the kubelet has paused: the claim of %s took %s, the way back %s", id, claim, back)
		}
	}
	c.kubectl(t, "delete", "sandboxpool", "recycled", "--timeout=60s")
}
