package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// program compiles a command of the repository, named by its folder, for a platform
// and returns the file. It does so once for each.
func (b *builder) program(ctx context.Context, command string, p v1.Platform) (string, error) {
	key := command + " " + p.String()
	if path, done := b.programs[key]; done {
		return path, nil
	}
	path := filepath.Join(b.work, p.Architecture, filepath.Base(command))
	overlay, err := b.withoutHelpers()
	if err != nil {
		return "", err
	}
	// Neither the paths nor the state of this checkout may get into the program. make
	// compiles with the same flags, so what it has compiled is taken from Go's cache.
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-overlay", overlay,
		"-gcflags=all=-dwarf=false", "-ldflags", "-s -w -X main.version="+b.version, "-o", path, "./"+command)
	cmd.Dir = b.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Architecture, "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile %s: %w\n%s", command, err, strings.TrimSpace(string(out)))
	}
	b.programs[key] = path
	return path, nil
}

// withoutHelpers writes a file for `go build -overlay` that hides the programs
// which `sandlane up` carries with it. No container needs them, they are for the
// machine that built them, and whether they are there would change the image.
func (b *builder) withoutHelpers() (string, error) {
	built, err := filepath.Glob(filepath.Join(b.root, "local", "helpers", "bin", "*"))
	if err != nil {
		return "", err
	}
	hidden := map[string]string{}
	for _, path := range built {
		if filepath.Base(path) != "README" {
			hidden[path] = ""
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": hidden})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(b.work, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	return overlay, nil
}
