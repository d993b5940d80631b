package helm

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const rulesFile = chart + "/files/rules.yaml"

var (
	alertName = regexp.MustCompile(`(?m)^  - alert: (\w+)$`)
	runbook   = regexp.MustCompile(`(?m)^      runbook_url: https://\S+/docs/operations\.md#(\S+)$`)
	heading   = regexp.MustCompile(`(?m)^### (.+)$`)
)

func text(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Each alert fires under its condition, and links to its heading on the page; each heading
// of the page's alerts has an alert.
func TestRules(t *testing.T) {
	promtool := os.Getenv("PROMTOOL")
	if promtool == "" {
		t.Fatal("PROMTOOL is not set: run `make helm-test`")
	}
	path, err := filepath.Abs(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	rules, tests := text(t, rulesFile), text(t, "testdata/rules_test.yaml")
	file := filepath.Join(t.TempDir(), "rules_test.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(tests, "[RULES]", "["+path+"]", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", "--lint=all", "--lint-fatal", path}, {"test", "rules", file}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args[:2], " "), err, out)
		}
	}
	names, books := alertName.FindAllStringSubmatch(rules, -1), runbook.FindAllStringSubmatch(rules, -1)
	if len(names) < 10 || len(names) != len(books) {
		t.Fatalf("%d alerts and %d runbooks", len(names), len(books))
	}
	for _, m := range names {
		if !regexp.MustCompile(`\b` + m[1] + `\b`).MatchString(tests) {
			t.Errorf("the condition of %s is not produced in testdata/rules_test.yaml", m[1])
		}
	}
	_, page, _ := strings.Cut(text(t, "../../docs/operations.md"), "\n## Alerts\n")
	page, _, _ = strings.Cut(page, "\n## ")
	known := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		known[strings.ReplaceAll(strings.ToLower(m[1]), " ", "-")] = false
	}
	for _, m := range books {
		if _, ok := known[m[1]]; !ok {
			t.Errorf("docs/operations.md has no alert %q", m[1])
		}
		known[m[1]] = true
	}
	for name, used := range known {
		if !used {
			t.Errorf("no rule leads to the page's alert %q", name)
		}
	}
}
