package docs

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/sandlane/sandlane/test/checkout"
	"github.com/sandlane/sandlane/test/pages"
)

var (
	setting = regexp.MustCompile(`--set ([A-Za-z0-9.]+)=`)
	program = regexp.MustCompile(`^(?:bin/)?sandlane ([a-z -]+?)(?: --| [<>]|$)`)
	flag    = regexp.MustCompile(` (--[a-z-]+)`)
)

// What commands for a cluster name is there: values of the chart, and flags of the program.
func TestCommandsForACluster(t *testing.T) {
	text, err := os.ReadFile(checkout.Path(t, "charts", "sandlane", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, page := range pages.OfUsers(t) {
		for _, b := range pages.Blocks(t, page) {
			if b.Where != pages.Node {
				continue
			}
			for line := range strings.Lines(strings.ReplaceAll(b.Text, "\\\n", "")) {
				line, _, _ = strings.Cut(strings.TrimSpace(line), "  #")
				for _, m := range setting.FindAllStringSubmatch(line, -1) {
					found["set"]++
					if !has(values, strings.Split(m[1], ".")) {
						t.Errorf("%s:%d: the chart has no value %q", page, b.Line, m[1])
					}
				}
				if m := program.FindStringSubmatch(line); m != nil {
					found["sandlane"]++
					help := helpOf(t, strings.Fields(m[1]))
					for _, f := range flag.FindAllStringSubmatch(line, -1) {
						if !strings.Contains(help, f[1]) {
							t.Errorf("%s:%d: sandlane %s has no %s:\n%s", page, b.Line, m[1], f[1], help)
						}
					}
				}
			}
		}
	}
	if found["set"] < 4 || found["sandlane"] < 3 {
		t.Errorf("found %v: the patterns have rotted", found)
	}
}

func has(values map[string]any, path []string) bool {
	v, found := values[path[0]]
	if !found || len(path) == 1 {
		return found
	}
	below, ok := v.(map[string]any)
	return ok && has(below, path[1:])
}

func helpOf(t *testing.T, command []string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), shared.Bin, append(command, "--help")...).CombinedOutput()
	if err != nil {
		t.Fatalf("sandlane %v --help: %v\n%s", command, err, out)
	}
	return string(out)
}
