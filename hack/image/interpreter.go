package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// interpreterDir has the code interpreter's server and packages.
	interpreterDir = "opt/code-interpreter"
	// oldestPython is the oldest that the locked packages run on.
	oldestPython    = "3.11"
	interpreterPort = "49999/tcp"
)

// wheelPlatforms are what pip calls the systems whose wheels run on a Debian of 2021 or later.
var wheelPlatforms = []string{"manylinux_2_28", "manylinux_2_27", "manylinux_2_24", "manylinux_2_17", "manylinux2014"}

// codeInterpreter makes the base sandbox on an image with Python, and adds the code
// interpreter: its server, and its packages for that Python in the versions and with the
// hashes of the lock file, which this machine's pip fetches and does not run.
func (b *builder) codeInterpreter(ctx context.Context, p v1.Platform) (v1.Image, error) {
	on, err := b.sandboxOn(ctx, p)
	if err != nil {
		return nil, err
	}
	g, err := b.ground(ctx, p)
	if err != nil {
		return nil, err
	}
	if newer(oldestPython, g.python) {
		has := "none in /usr/bin or /usr/local/bin"
		if g.python != "" {
			has = g.python
		}
		return nil, fmt.Errorf("the code interpreter needs Python %s or newer, and %s has %s", oldestPython, b.base, has)
	}
	packages := filepath.Join(b.work, "packages-"+p.Architecture)
	if err := b.fetch(ctx, p, g.python, packages); err != nil {
		return nil, err
	}
	media, err := layerMedia(g.image)
	if err != nil {
		return nil, err
	}
	layer, err := b.interpreterLayer(packages, filepath.Join(b.work, "interpreter-"+p.Architecture+".tar"), media)
	if err != nil {
		return nil, err
	}
	return b.finish(on, p, layer, func(c *v1.Config) {
		c.Env = slices.DeleteFunc(c.Env, func(pair string) bool { return strings.HasPrefix(pair, "PYTHONPATH=") })
		c.Env = append(c.Env, "PYTHONPATH=/"+interpreterDir+"/server:/"+interpreterDir+"/packages")
		asCommands(c, "LANG", "PYTHONPATH")
		c.Entrypoint = append(c.Entrypoint, "--", "python"+g.python, "-m", "sandlane_interpreter")
		c.ExposedPorts[interpreterPort] = struct{}{}
	}, interpreterName, "the code interpreter that E2B's SDKs talk to, in a sandbox")
}

// asCommands hands variables on to commands and to the server.
func asCommands(c *v1.Config, names ...string) {
	for i, pair := range c.Env {
		if given, ok := strings.CutPrefix(pair, commandEnv+"="); ok {
			all := strings.FieldsFunc(given, func(r rune) bool { return r == ',' || r == ' ' })
			for _, name := range names {
				if !slices.Contains(all, name) {
					all = append(all, name)
				}
			}
			c.Env[i] = commandEnv + "=" + strings.Join(all, ",")
			return
		}
	}
	c.Env = append(c.Env, commandEnv+"="+strings.Join(names, ","))
}

// fetch puts the locked packages into a folder.
func (b *builder) fetch(ctx context.Context, p v1.Platform, python, dir string) error {
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[p.Architecture]
	if machine == "" {
		return fmt.Errorf("the code interpreter's packages are not made for %s", p)
	}
	args := []string{
		"-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-warn-conflicts", "--root-user-action", "ignore",
		"--no-compile", "--only-binary", ":all:", "--require-hashes", "--implementation", "cp", "--python-version", python,
		"--target", dir, "--requirement", b.packages,
	}
	for _, system := range wheelPlatforms {
		args = append(args, "--platform", system+"_"+machine)
	}
	_, _ = fmt.Fprintf(b.stdout, "fetching the code interpreter's packages for Python %s on %s\n", python, p)
	if out, err := exec.CommandContext(ctx, "python3", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("fetch the code interpreter's packages by pip: %w\n%s", err, out)
	}
	return nil
}

// interpreterLayer writes server and packages into a tarball on disk: they are too large to be
// held in memory.
func (b *builder) interpreterLayer(packages, file string, media types.MediaType) (v1.Layer, error) {
	entries := []entry{folder("opt", 0o755), folder(interpreterDir, 0o755)}
	for to, from := range map[string]string{
		"server/sandlane_interpreter": filepath.Join(b.root, "interpreter", "sandlane_interpreter"), "packages": packages,
	} {
		found, err := entriesOf(from, interpreterDir+"/"+to)
		if err != nil {
			return nil, fmt.Errorf("read the code interpreter: %w", err)
		}
		entries = append(entries, found...)
	}
	entries = append(entries, folder(interpreterDir+"/server", 0o755))
	out, err := os.Create(file)
	if err == nil {
		err = errors.Join(writeTar(out, entries, b.created), out.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("write the code interpreter's layer: %w", err)
	}
	return tarball.LayerFromFile(file, tarball.WithMediaType(media))
}

// entriesOf are the files and folders below a folder, without what Python compiles.
func entriesOf(from, to string) (all []entry, err error) {
	err = filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == "__pycache__" {
			return fs.SkipDir
		}
		below, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		at := filepath.Join(to, below)
		if d.IsDir() {
			all = append(all, folder(at, 0o755))
			return nil
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		all = append(all, entry{path: at, mode: int64(0o644 | info.Mode().Perm()&0o111), file: path})
		return nil
	})
	return all, err
}
