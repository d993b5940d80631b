package e2b

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/sandlane/sandlane/test/sdkenv"
)

// sdkPrograms has the SDKs' lock files, and modules that scripts of this folder share.
var sdkPrograms = filepath.Join("..", "..", "conformance", "sdk")

// python installs a version of the Python SDK and returns its interpreter.
func python(ctx context.Context, t *testing.T, version string) string {
	t.Helper()
	return filepath.Join(sdkenv.Python(ctx, t, filepath.Join(sdkPrograms, "python", "e2b-"+version+".lock")), "python")
}

// venv installs what a lock file of Python says and returns the folder of its
// programs.
func venv(ctx context.Context, t *testing.T, lock string) string {
	t.Helper()
	return sdkenv.Python(ctx, t, filepath.Join("python", lock))
}

// js installs a version of the JavaScript SDK, or what a folder of js/ says, and returns its
// folder.
func js(ctx context.Context, t *testing.T, version string) string {
	t.Helper()
	from := filepath.Join("js", version)
	if version[0] >= '0' && version[0] <= '9' {
		from = filepath.Join(sdkPrograms, from)
	}
	return sdkenv.Node(ctx, t, filepath.Join(from, "package.json"), filepath.Join(from, "package-lock.json"))
}
