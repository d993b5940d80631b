package e2b

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// terminal runs a program with a terminal of its own, as a person would, and exits as it does.
const terminal = `import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))`

// E2B's command-line client shows, runs and pauses sandboxes, and builds, lists and deletes
// templates. Each step sees what those before
// it left.
func TestCLI(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	e2b := filepath.Join(js(ctx, t, "cli-2.19.0"), "node_modules", ".bin", "e2b")
	home := t.TempDir() // where it would keep who has logged in
	run := func(input string, args ...string) (code int, said string) {
		t.Helper()
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Stdin = strings.NewReader(input)
		cmd.Env = append(os.Environ(), "HOME="+home, "NO_COLOR=1", "NO_UPDATE_NOTIFIER=1",
			"E2B_API_KEY="+shared.Up.APIKey, "E2B_API_URL="+shared.Up.GatewayURL, "E2B_SANDBOX_URL="+shared.Up.GatewayURL)
		out, err := cmd.CombinedOutput()
		if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "e2b.Dockerfile"), []byte("FROM "+unmadeImage(t)+"\nRUN id -un > /tmp/who\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, said := run("", e2b, "sandbox", "create", "--detach", "base")
	made := regexp.MustCompile(`\bi[a-z0-9]{20}\b`).FindString(said)
	if code != 0 || made == "" {
		t.Fatalf("create: exit code %d\n%s", code, said)
	}
	for _, c := range []struct {
		args, input string
		code        int
		want        string // a regular expression
	}{
		{args: "auth info", want: `Not logged in`},
		{args: "sandbox list", want: `{id}`},
		{args: "sandbox info {id}", want: `(?s)Sandbox ID: {id}.*State: running`},
		{args: "sandbox info --format json {id}", want: `"sandboxId": "{id}"`},
		{args: "sandbox exec {id} echo out; echo err >&2; exit 3", code: 3, want: `(?s)out.*err|err.*out`},
		{args: "sandbox exec {id} tr a-z A-Z", input: "typed", want: `TYPED`},
		{args: "sandbox exec -u root -c /usr -e V=1 {id} id -un; pwd; echo $V", want: `root\s+/usr\s+1`},
		{args: "sandbox logs {id}", want: `INFO.*process.*sandboxd .* listens on`},
		{args: "sandbox logs --format json {id}", want: `"level":"info","logger":"process","message":"sandboxd .* listens on`},
		{args: "sandbox metrics {id}", want: `CPU.*Memory`},
		{args: "sandbox connect {id}", input: "echo $((6*7))-in-a-terminal\nexit\n", want: `42-in-a-terminal`},
		{args: "sandbox pause {id}", want: `has been paused`},
		{args: "sandbox info {id}", want: `State: paused`},
		{args: "sandbox resume {id}", want: `has been resumed`},
		{args: "sandbox exec {id} echo awake", want: `awake`},
		{args: "sandbox kill {id}", want: `has been killed`},
		{args: "sandbox info {id}", code: 1, want: `wasn't found`},
		{args: "template create by-cli --path " + dir, want: `(?s)RUN id -un > /tmp/who.*by-cli.* finished`},
		{args: "template list", want: `Private +[a-z0-9]{20} +by-cli`},
		{args: "template publish --yes by-cli", code: 1, want: `\[400\] bad request: public: .*a template is of its team alone`},
		{args: "template unpublish --yes by-cli", want: `Unpublishing sandbox template`},
		{args: "template delete --yes by-cli", want: `Deleting sandbox template`},
		{args: "template delete --yes by-cli", code: 1, want: `\[404\] not found`},
	} {
		args := []string{e2b}
		for i, part := range strings.SplitN(c.args, " {id}", 2) {
			if i == 0 {
				args = append(args, strings.Fields(part)...)
			} else if args = append(args, made); part != "" {
				args = append(args, strings.TrimSpace(part))
			}
		}
		if strings.HasPrefix(c.args, "sandbox connect") {
			args = append([]string{"python3", "-c", terminal}, args...)
		}
		want := regexp.MustCompile(strings.ReplaceAll(c.want, "{id}", made))
		if code, said := run(c.input, args...); code != c.code || !want.MatchString(said) {
			t.Errorf("e2b %s: exit code %d, want %d and %q:\n%s", c.args, code, c.code, want, said)
		}
	}
}
