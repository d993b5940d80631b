package helm

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml[^\n]*\n(.*?)```")

// page: the objects that docs/install.md tells users to apply are accepted, and their pool
// gets its warm pods, whose image has nothing but a static program: what a sandbox needs comes
// with the template's runtime. The test changes only name, image and the image's user, who may
// write nowhere.
func (c *cluster) page(t *testing.T, python string) {
	dir, blocks := c.tempDir(t), yamlBlock.FindAllStringSubmatch(text(t, "../../docs/install.md"), -1)
	if len(blocks) != 2 {
		t.Fatalf("docs/install.md has %d blocks of YAML, want a pool and a team's values", len(blocks))
	}
	write := func(name, content string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	here := strings.NewReplacer(`"python:3.13-slim"`, `"sandlane-test-echo:test", securityContext: {runAsUser: 0}`, "name: base,", "name: page,")
	c.kubectl(t, "apply", "--validate=strict", "-f", write("pool.yaml", here.Replace(blocks[0][1])))
	c.eventually(t, func(out string) bool { return out == "2" }, "kubectl", "get", "sandboxpool", "page", "-o", "jsonpath={.status.idle}")
	c.python(t, python, "anyimage.py", "page")
	c.kubectl(t, "delete", "sandboxpool", "page", "--timeout=60s")
	team := c.run(t, "helm", "template", "blue", c.chart+"-tenant", "-n", "default", "-f", write("blue.yaml", blocks[1][1]))
	c.kubectl(t, "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", write("team.yaml", team))
	made := c.run(t, c.sandlane, "apikey", "create", "--kubeconfig", c.Kubeconfig(), "--namespace", "default")
	if !strings.HasPrefix(made, "e2b_") {
		t.Error("apikey create has printed no key")
	}
}
