// Package helpers carries the programs that the local cluster needs besides
// the sandlane binary: podinit, which starts the processes of pods, and echo and
// sandboxd, the images of the two pools; and Envoy's module of the fast path, if it
// could be built.
//
// It holds bytes and writes them to files, no more. `sandlane up` calls it.
// The programs are built into the folder bin before the binary is; a binary
// built without them works, but cannot run a cluster.
package helpers

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed bin
var bin embed.FS

// Names of the helper programs.
var Names = []string{"podinit", "echo", "sandboxd"}

const moduleFile = "fastpath.so"

// ErrNotBuilt is returned by Extract in a binary that carries no helpers.
var ErrNotBuilt = errors.New(`built without its helper programs: build with "make build"`)

// Extract writes the helper programs into dir, which is created if needed, as
// executables only the user may write. A program that is there already is
// replaced in one step, so that a process which runs or starts it is not
// disturbed. It returns ErrNotBuilt, and writes nothing, if one is missing.
func Extract(dir string) error { return extract(bin, dir) }

func extract(from fs.FS, dir string) error {
	programs := map[string][]byte{}
	for _, name := range Names {
		raw, err := fs.ReadFile(from, "bin/"+name)
		if errors.Is(err, fs.ErrNotExist) {
			return ErrNotBuilt
		}
		if err != nil {
			return fmt.Errorf("read helper program %s: %w", name, err)
		}
		programs[name] = raw
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of helper programs: %w", err)
	}
	for name, raw := range programs {
		if err := replace(filepath.Join(dir, name), raw); err != nil {
			return fmt.Errorf("write helper program %s: %w", name, err)
		}
	}
	return nil
}

// ExtractModule writes Envoy's module of the fast path into dir and returns its path.
// It returns an error that says so in a binary that was built without it.
func ExtractModule(dir string) (string, error) { return extractModule(bin, dir) }

func extractModule(from fs.FS, dir string) (string, error) {
	raw, err := fs.ReadFile(from, "bin/"+moduleFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", errors.New("this program was built without its module, for want of a C compiler")
	}
	if err != nil {
		return "", fmt.Errorf("read the module of the fast path: %w", err)
	}
	path := filepath.Join(dir, moduleFile)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the folder of helper programs: %w", err)
	}
	if err := replace(path, raw); err != nil {
		return "", fmt.Errorf("write the module of the fast path: %w", err)
	}
	return path, nil
}

func replace(path string, raw []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Chmod(0o755), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
