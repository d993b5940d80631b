package structure

import (
	"os/exec"
	"strings"
	"testing"
)

// No test code is in a binary: not Go's package testing, no fake client, and nothing of
// ours that is made for tests.
func TestNoTestCodeInBinaries(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module+"/cmd/...", module+"/controlplane/cache").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 100 {
		t.Fatalf("%d packages only", len(deps))
	}
	for _, dep := range deps {
		ours, _ := strings.CutPrefix(dep, module+"/")
		if dep == "testing" || strings.HasPrefix(ours, "test/") || strings.HasSuffix(ours, "/cachetest") ||
			strings.HasSuffix(dep, "controller-runtime/pkg/client/fake") {
			t.Errorf("a binary has %s", dep)
		}
	}
}
