package e2b

import (
	"archive/tar"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// templateCases are those of template.py, templateCasesJS those of template.mjs.
var (
	templateCases   = []feature{{name: "build"}, {name: "files"}, {name: "environment"}, {name: "server"}, {name: "again"}, {name: "tags"}, {name: "lists"}, {name: "from_template"}, {name: "cached"}, {name: "failure"}, {name: "refusals"}, {name: "deletion"}}
	templateCasesJS = []feature{{name: "build"}, {name: "files"}, {name: "environment"}, {name: "server"}, {name: "tags"}, {name: "cached"}, {name: "deletion"}}
)

// A program builds a template with E2B's SDK from an image that was not made for it, and a
// sandbox of the template has the files, variables, user and server that the steps made. A
// build that fails names its step, and leaves the template as it was.
func TestTemplateBuild(t *testing.T) {
	t.Parallel()
	testTemplateBuild(t, "2.63.0", "2.51.0")
}

// The oldest SDKs build templates too.
func TestTemplateBuildByOlderSDKs(t *testing.T) {
	t.Parallel()
	testTemplateBuild(t, "2.45.1", "2.30.5")
}

func testTemplateBuild(t *testing.T, py, node string) {
	image := unmadeImage(t)
	t.Run("Python "+py, func(t *testing.T) {
		t.Parallel()
		m := newTeam(t, "templates", func(*v1alpha1.SandboxPool) {})
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, python(ctx, t, py), filepath.Join("python", "template.py"), image)
		cmd.Env = m.env()
		printTimes(t, judge(t, cmd, templateCases, map[string]bool{}))
	})
	t.Run("JS "+node, func(t *testing.T) {
		t.Parallel()
		m := newTeam(t, "templates-js", func(*v1alpha1.SandboxPool) {})
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "node", filepath.Join("js", "template.mjs"), js(ctx, t, node), image)
		cmd.Env = m.env()
		printTimes(t, judge(t, cmd, templateCasesJS, map[string]bool{}))
	})
}

// printTimes prints how long builds took.
func printTimes(t *testing.T, said string) {
	t.Helper()
	for line := range strings.Lines(said) {
		if text, found := strings.CutPrefix(strings.TrimSpace(line), "TIMES "); found {
			t.Log(text)
		}
	}
}

// unmadeImage pushes an image that was not made for sandboxes, and returns its reference.
func unmadeImage(t *testing.T) string {
	t.Helper()
	base := newLayer(t)
	for _, program := range []string{"bash", "id", "env", "cat", "ls", "rm", "mkdir", "stat", "sleep"} {
		base.program(program)
	}
	base.add(tar.Header{Name: "bin/sh", Typeflag: tar.TypeSymlink, Linkname: "bash"}, nil)
	base.add(tar.Header{Name: "srv/echo", Typeflag: tar.TypeReg, Mode: 0o755}, echoServer(t))
	base.add(tar.Header{Name: "srv/old/removed", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("of the base"))
	base.add(tar.Header{Name: "srv/old/kept", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("of the base"))
	base.add(tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil)
	return base.pushTo(images, v1.Config{Env: []string{"PATH=/bin:/usr/local/bin", "GREETING=hello"}, WorkingDir: "/srv"})
}
