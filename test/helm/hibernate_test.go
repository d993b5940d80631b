package helm

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// checkpointVolume is a volume in a folder of the node, to which the chart's
// PersistentVolumeClaim is bound.
const checkpointVolume = `{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"checkpoints"},"spec":{"capacity":{"storage":"1Gi"},
"accessModes":["ReadWriteMany"],"persistentVolumeReclaimPolicy":"Retain","hostPath":{"path":%q,"type":"Directory"}}}`

// chartUser is the user as which the chart's processes run.
const chartUser = 65532

func (c *cluster) makeVolume(t *testing.T) {
	t.Helper()
	c.volume = c.tempDir(t)
	if err := os.Chown(c.volume, chartUser, chartUser); err != nil {
		t.Fatal(err)
	}
	c.apply(t, fmt.Sprintf(checkpointVolume, c.volume))
}

// archives are the files on the volume.
func (c *cluster) archives(t *testing.T) []string {
	t.Helper()
	return strings.Fields(c.run(t, "ls", "-A", c.volume))
}

// hibernate: a sandbox gives its pod up, and its files are on the volume of the chart.
func (c *cluster) hibernate(t *testing.T, python string) {
	out := c.python(t, python, "hibernate.py")
	c.hibernated, _, _ = strings.Cut(out, "\n")
	kept := c.kubectl(t, "get", "sandbox", c.hibernated, "-o", "jsonpath={.spec.pauseMode} {.spec.binding} {.spec.restore.checkpoint}")
	mode, checkpoint, _ := strings.Cut(kept, "  ") // no binding
	if mode != "Hibernate" || checkpoint == "" {
		t.Fatalf("mode, binding and checkpoint are %q", kept)
	}
	uid := c.kubectl(t, "get", "checkpoint", checkpoint, "-o", "jsonpath={.metadata.uid}")
	if on := c.archives(t); len(on) != 1 || on[0] != uid {
		t.Errorf("on the volume are %q, want the archive %s alone", on, uid)
	}
	c.eventually(t, func(out string) bool { return !strings.Contains(out, c.hibernated) }, "kubectl", "get", "pods", "-o",
		`jsonpath={.items[*].metadata.labels.sandlane\.dev/sandbox-id}`)
}

// resume: gateways that were started after the pause resume the sandbox.
func (c *cluster) resume(t *testing.T, python string) {
	c.python(t, python, "hibernate.py", c.hibernated)
}
