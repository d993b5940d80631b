package structure

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// No test code is in a binary: not Go's package testing, no fake client, and nothing of
// ours that is made for tests.
func TestNoTestCodeInBinaries(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", module+"/cmd/...", module+"/library/cache").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(deps) < 100 {
		t.Fatalf("%d packages only", len(deps))
	}
	for _, line := range deps {
		dep, imports, _ := strings.Cut(line, " ")
		// The package of umoci that unpacks layers has helpers of its tests in it.
		if slices.Contains(strings.Fields(imports), "testing") && dep != "github.com/opencontainers/umoci/internal/testhelpers" {
			t.Errorf("a binary has %s, which has package testing", dep)
		}
		ours, _ := strings.CutPrefix(dep, module+"/")
		if strings.HasPrefix(ours, "test/") || strings.HasSuffix(ours, "/cachetest") ||
			strings.HasSuffix(dep, "controller-runtime/pkg/client/fake") {
			t.Errorf("a binary has %s", dep)
		}
	}
}
