package e2b

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Programs of E2B's code interpreter SDKs run unmodified against the pool that up has for them.
func TestCodeInterpreter(t *testing.T) {
	t.Parallel() // it waits for the pool's packages
	warm := func() {
		shared.Eventually(t, 5*time.Minute, "a warm pod of the code interpreter", func() (bool, string) {
			pool := &v1alpha1.SandboxPool{}
			err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "code-interpreter-v1"}, pool)
			return pool.Status.Idle > pool.Status.UnavailableIdle, fmt.Sprint(pool.Status, err)
		})
	}
	named := func(names ...string) (all []feature) {
		for _, name := range names {
			all = append(all, feature{name: name})
		}
		return all
	}
	for _, s := range []struct {
		name     string
		features []feature
		args     func(context.Context) []string
	}{
		{
			"Python 2.11.5", named("first_program", "contexts", "callbacks", "charts", "languages", "variables", "timeouts", "pause"),
			func(ctx context.Context) []string {
				return []string{filepath.Join(venv(ctx, t, "e2b-code-interpreter-2.11.5.lock"), "python"), filepath.Join("python", "interpreter.py")}
			},
		},
		{
			"JS 2.8.0", named("first_program", "languages", "callbacks"),
			func(ctx context.Context) []string {
				return []string{"node", filepath.Join("js", "interpreter.mjs"), js(ctx, t, "code-interpreter-2.8.0")}
			},
		},
	} {
		t.Run(s.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			args := s.args(ctx)
			warm()
			cmd := exec.CommandContext(ctx, args[0], args[1:]...)
			cmd.Env = append(os.Environ(),
				"E2B_API_KEY="+shared.Up.APIKey, "E2B_API_URL="+shared.Up.GatewayURL, "E2B_SANDBOX_URL="+shared.Up.GatewayURL)
			t.Log(judge(t, cmd, s.features, map[string]bool{}))
		})
	}
}
