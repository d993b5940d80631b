package e2b

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// `sandlane template` builds a template of a Dockerfile, and shows what the build prints; a failure
// is one line. What it builds it lists, and deletes.
func TestTemplateCommand(t *testing.T) {
	t.Parallel()
	image := unmadeImage(t)
	m := newTeam(t, "templates-command", func(*v1alpha1.SandboxPool) {})
	dir := t.TempDir()
	for name, text := range map[string]string{
		"Dockerfile": "FROM " + image + "\nWORKDIR /app\nCOPY one.txt two/ /app/\nRUN id -un > who; cat one.txt deep > both\nCMD [\"/srv/echo\"]\n",
		"bad":        "FROM " + image + "\nRUN echo so it goes; exit 7\n",
		"one.txt":    "one\n", "two/deep": "two\n",
	} {
		at := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (code int, said string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), shared.Bin, append([]string{"template", "--url", shared.Up.GatewayURL}, args...)...)
		cmd.Env = m.env()
		out, err := cmd.CombinedOutput()
		if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	for _, c := range []struct {
		args []string
		code int
		want string // a regular expression
	}{
		{[]string{"build", "--name", "mine:v1", dir}, 0, `(?s)uploading one.txt.*\[6\] RUN id -un.*template mine:v1 is ready after`},
		{[]string{"build", "--name", "mine:v1", dir}, 0, `\[6\] CACHED RUN id -un`},
		{[]string{"build", "--name", "mine", "-f", filepath.Join(dir, "bad"), dir}, 1, `(?m)^sandlane: build mine: failed at the step 3: exit status 7: so it goes$`},
		{[]string{"list"}, 0, `(?m)^mine +[a-z0-9]{20} +ready`},
		{[]string{"delete", "mine"}, 0, `template mine deleted`},
		{[]string{"delete", "mine"}, 1, `(?m)^sandlane: delete the template mine: .*\(404\)$`},
		{[]string{"build", "--name", "Not Good", dir}, 1, `(?m)^sandlane: build Not Good: name: .*\(400\)$`},
	} {
		if code, said := run(c.args...); code != c.code || !regexp.MustCompile(c.want).MatchString(said) {
			t.Errorf("%q: exit code %d, want %d and %q:\n%s", c.args, code, c.code, c.want, said)
		}
	}
}
