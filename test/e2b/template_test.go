package e2b

import (
	"archive/tar"
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// A program builds a template with E2B's SDK from an image that was not made for it, and a
// sandbox of the template has the files, variables, user and server that the steps made. A
// build that fails names its step, and leaves the template as it was.
func TestTemplateBuild(t *testing.T) {
	base := newLayer(t)
	for _, program := range []string{"bash", "id", "env", "cat", "ls", "rm", "mkdir", "stat", "sleep"} {
		base.program(program)
	}
	base.add(tar.Header{Name: "bin/sh", Typeflag: tar.TypeSymlink, Linkname: "bash"}, nil)
	base.add(tar.Header{Name: "srv/echo", Typeflag: tar.TypeReg, Mode: 0o755}, echoServer(t))
	base.add(tar.Header{Name: "srv/old/removed", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("of the base"))
	base.add(tar.Header{Name: "srv/old/kept", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("of the base"))
	base.add(tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil)
	image := base.pushTo(images, v1.Config{Env: []string{"PATH=/bin:/usr/local/bin", "GREETING=hello"}, WorkingDir: "/srv"})

	m := newTeam(t, "templates", func(*v1alpha1.SandboxPool) {})
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(venv(ctx, t, "e2b-2.63.0.lock"), "python"), filepath.Join("python", "template.py"), image)
	cmd.Env = m.env()
	judge(t, cmd, []feature{
		{name: "build"}, {name: "files"}, {name: "environment"}, {name: "server"}, {name: "again"}, {name: "failure"}, {name: "refusals"}, {name: "deletion"},
	}, map[string]bool{})
}
