package e2b

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/sandlane/sandlane/test/sdkenv"
)

// python installs a version of the Python SDK and returns its interpreter.
func python(ctx context.Context, t *testing.T, version string) string {
	t.Helper()
	return filepath.Join(venv(ctx, t, "e2b-"+version+".lock"), "python")
}

// venv installs what a lock file of Python says and returns the folder of its
// programs.
func venv(ctx context.Context, t *testing.T, lock string) string {
	t.Helper()
	return sdkenv.Python(ctx, t, filepath.Join("python", lock))
}

// js installs a version of the JavaScript SDK and returns its folder.
func js(ctx context.Context, t *testing.T, version string) string {
	t.Helper()
	from := filepath.Join("js", version)
	return sdkenv.Install(ctx, t, "node", []string{filepath.Join(from, "package.json"), filepath.Join(from, "package-lock.json")}, func(string) [][]string {
		return [][]string{{"npm", "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"}}
	})
}
