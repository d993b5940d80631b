package helm

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// registryAddress is a registry on the node, whose kubelet pulls there without TLS.
const registryAddress = "127.0.0.1:5000"

// startRegistry serves images of hack/helm-test.sh on the node until the step ends.
func (c *cluster) startRegistry(t *testing.T, images ...string) {
	t.Helper()
	args := []string{"-address", registryAddress}
	for _, image := range images {
		dir := os.Getenv("SANDLANE_IMAGES")
		tarballs, err := filepath.Glob(filepath.Join(dir, image+"-*.tar"))
		if err != nil || len(tarballs) != 1 {
			t.Fatalf("the image %s in %s: %v, %v", image, dir, tarballs, err)
		}
		args = append(args, tarballs[0])
	}
	c.serveRegistry(t, args...)
}

// serveRegistry runs hack/image/registry with these arguments on the node until the step ends.
func (c *cluster) serveRegistry(t *testing.T, args ...string) {
	t.Helper()
	program := os.Getenv("SANDLANE_REGISTRY")
	if program == "" {
		t.Fatal("SANDLANE_REGISTRY is not set: run `make node-test`")
	}
	cmd := c.Command(t.Context(), program, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	// The registry goes on when nsenter has ended, and ends with its standard input.
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "serving\n" {
		t.Fatalf("the registry says %q: %v", line, err)
	}
}

// digest returns the registry's digest of an image.
func (c *cluster) digest(t *testing.T, image string) string {
	t.Helper()
	headers := c.run(t, "curl", "-fsSI", "-H", "Accept: application/vnd.oci.image.manifest.v1+json", "http://"+registryAddress+"/v2/"+image+"/manifests/test")
	for line := range strings.Lines(headers) {
		if name, value, _ := strings.Cut(line, ":"); strings.EqualFold(name, "Docker-Content-Digest") {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("the registry gives %s no digest:\n%s", image, headers)
	return ""
}

// Images are pulled from a registry, Sandlane's by the digests of the values, while
// requests flow. A pool whose tag the registry does not have reports that until its tag is
// changed.
func (c *cluster) pulled(t *testing.T) {
	c.startRegistry(t, "sandlane-gateway", "sandlane-controller", "sandlane-test-envoy", "sandlane-test-echo")
	gateway, controller := c.digest(t, "sandlane-gateway"), c.digest(t, "sandlane-controller")
	process := c.process(t, "mine")
	a := c.during(t, "mine", func() {
		c.roll(t, "global.imageRegistry="+registryAddress+",imagePullPolicy=Always,imageDigests.gateway="+gateway+",imageDigests.controller="+controller)
	})
	a.sameProcess(t, process)
	a.noneFailed(t)
	for app, digest := range map[string]string{"gateway": gateway, "controller": controller} {
		ids := c.kubectl(t, "-n", system, "get", "pods", "-l", "app=sandlane-"+app, "--field-selector=status.phase=Running",
			"-o", `jsonpath={range .items[*]}{.metadata.deletionTimestamp}|{.status.containerStatuses[0].imageID} {end}`)
		for _, id := range strings.Fields(ids) {
			if strings.HasPrefix(id, "|") && id != "|"+registryAddress+"/sandlane-"+app+"@"+digest {
				t.Errorf("a %s runs %s, want the digest %s of the registry", app, id, digest)
			}
		}
	}
	pool := func(image string) {
		c.apply(t, strings.Replace(fmt.Sprintf(sandboxPool, "pulled", registryAddress+"/sandlane-test-echo"+image), "IfNotPresent", "Always", 1))
	}
	pool(":none")
	c.eventually(t, func(out string) bool { return strings.HasPrefix(out, "True ErrImagePull ") }, "kubectl", "get", "sandboxpool", "pulled",
		"-o", `jsonpath={range .status.conditions[?(@.type=="Degraded")]}{.status} {.reason} {.message}{end}`)
	pool("@" + c.digest(t, "sandlane-test-echo"))
	c.idlePod(t, "pulled")
	c.kubectl(t, "delete", "sandboxpool", "pulled", "--timeout=60s")
	c.run(t, "helm", "rollback", "sandlane", "-n", system, "--wait", "--timeout", "180s")
}
